"""All constants of the policy, with their units and reasons.

docs/reference/policy.md is made from this file: its sections, and beside each constant where the value came from and
what it is for. ``tools/documentation/policy.py`` says which sources there are.
"""

# Histograms
BUCKETS_PER_OCTAVE = 8  # tuned: 9 % per bucket: finer than any provider's latency is stable
FIRST_EDGE_S = 0.010  # bound: no provider answers earlier
BUCKETS = 112  # bound: 14 octaves, to 163.84 s: beyond every first-token timeout

# The board
SLOT_S = 30  # tuned: one histogram per slot; short enough to forget, long enough for few writes
SLOTS_KEPT = 20  # tuned: ten minutes; the oldest weighs 4 %
HALF_LIFE_S = 120.0  # tuned: providers change within minutes
STANDINGS_AGE_S = 1.0  # bound: for so long a snapshot is used
# bound: after so long without the background task, calls compute their snapshots
REFRESHED_AT_LEAST_S = 5.0
REFRESH_MOST_S = 0.004  # bound: one slice of this work at most
REFRESH_EVERY_S = 0.1  # bound: between two slices
KEY_EXPIRY_S = 900  # bound: Redis deletes a slot after all replicas have dropped it
FLUSH_S = 1.0  # bound: between two exchanges with Redis, of up to a hundred replicas; two seconds of a thousand
LATE_MERGE_S = 30.0  # bound: so often all slots are read, not only the newest two
REDIS_TIMEOUT_S = 1.0  # bound: of one round of the background task

# Memory: beyond the board's ten minutes, for models with few calls, and to know what is usual
# world minute, fiveminutes: a working day, and a temporary change; the longest first
MEMORY_HALF_LIVES_S = (6 * 3600.0, 1800.0)
MODELS_REMEMBERED = 1000  # bound: those called last

# The size of prompts
SIZE_REFERENCE_TOKENS = 1000.0  # judgement: the policy's histograms have times for a prompt of this size
# judgement: the size at which reading the prompt takes as long as the rest
KNEE_PRIOR_TOKENS = 8000.0
KNEE_DOUBT = 1.2  # judgement: standard deviation of ln(knee) among deployments: a factor of three
SIZE_NOISE = 0.5  # judgement: standard deviation of ln(ttft) at one size
KNEE_HALF_LIFE_S = 3600.0  # judgement: a property of the hardware, so it changes slowly

# The estimator
PRIOR_EVENTS = 4.0  # tuned: the weight of the model's pooled samples: a few samples of a deployment's own outweigh them
# statistics: so many first tokens of a deployment's own are needed before its curve predicts what an overtaken
# primary would have taken
EXPECTED_FROM_EVENTS = 30.0
FIXED_PRIOR_EVENTS = 2.0  # tuned: weight of the fixed prior in the pool
FIXED_PRIOR_MEDIAN_S = 0.7  # judgement: the prior's median for a prompt of the reference size: a typical hosted model
FIXED_PRIOR_SIGMA = 1.0  # tuned: the prior's standard deviation of ln(seconds): wide, so that samples decide
MEAN_CAP_S = 30.0  # tuned: a longer time counts as this in the mean: one hung attempt must not outweigh the others
ERROR_PRIOR = (0.05, 5.0)  # tuned: errors, attempts: 1 %
# judgement: tokens, seconds of decoding: 60 tok/s, outweighed by one loser watched for 32 tokens
SPEED_PRIOR = (2.0, 1 / 30)
AT_ONCE_TPS = 5000.0  # bound: faster is no decoding, but an answer sent whole
SPEED_KNOWN_S = 0.5  # judgement: with less decoding measured, speed is not used against a deployment
ANSWER_PRIOR = (250.0, 100.0)  # tuned: tokens per answer, answers: chat and extraction mixed
SUCCESS_FLOOR = 0.1  # tuned: an error rate multiplies a score by at most ten

# The length of answers: expected by kind of call, learnt by each replica
# world kinds: answers; the weight of the coarser cell: kinds differ far more than answers of one kind
LENGTH_PRIOR = 2.0
LENGTH_MEMORY = 50.0  # judgement: answers in a cell's mean: prompts change, and an error of 5 to 10 % is acceptable
LENGTH_STEPS_PER_OCTAVE = 4  # bound: steps of a prediction, 19 %, so that plans can be reused
LENGTH_CELLS_KEPT = 4096  # bound: 200 bytes each, of all clients
TAG_VALUES_KNOWN = 32  # bound: a tag with more values is an id and predicts nothing
TAG_KEYS_KNOWN = 32  # bound: per model; limits what clients can store
TAGS_FORGOTTEN_AFTER = 10_000  # bound: tagged answers; then ids among tags are found again

# Smoothness
STALL_FROM_S = 0.5  # judgement: a shorter silence is no stall: hardly noticed, and usual between bursts
# world stalls: the prior's weight in usual answers: one unlucky stall of 5 s must not outweigh a better start
STALL_PRIOR = 5.0

# Reading
# judgement: a whole answer a second earlier is worth 50 ms of the first token, even to slow readers: people skim
WHOLE_SHARE = 0.05
# world kinds, decode: the same where calls are raced and the first token is sent at once, as attempts are taken to be
# independent
RACED_WHOLE_SHARE = 0.1

# Choosing
NEAR = 1.5  # tuned: within this factor of the best deployments share the traffic: against herding
SPREAD_EXPONENT = 12  # tuned: weight (best/score)^12: 10 % slower gets a third of the draws
# world quiet: of calls explore while something is not known of a deployment, such as its decode speed
EXPLORE_NEW_SHARE = 0.25
# world stalls: exploring may cost a call so much; an attempt that costs twice as much is made half as often
EXPLORE_HARM_S = 0.02
EXPLORE_SHARE = 0.02  # tuned: of calls try, in a spare slot, the deployment that was not asked for longest
MEETS_QUANTILE = 0.9  # judgement: nine of ten first tokens must come within ttft_ms; the hedge is for the tenth
# world bimodal, tight: the weight of the seconds beyond a deadline, beside the share of calls that miss it
LATE_SHARE = 0.25
# judgement: below this share of a rate limit the draw weight falls in proportion
HEADROOM_LOW = 0.2
HEADROOM_WEIGHT_MIN = 0.02  # bound: not 0: the figure may be outdated
HEADROOM_WINDOW_S = 60.0  # vendors: limits refill steadily: after this time the used part is back
COLD_EVENTS = 3  # tuned: with fewer first tokens, or speeds, a primary is unknown, and a second attempt runs beside it
HEDGE_SHARE = 0.1  # tuned: what hedging at the 90 % quantile costs; more budget is for races
HEDGE_MIN_S = 0.05  # tuned: no hedge starts sooner
# world constant: the part of the primary's mean TTFT that an attempt from the start must save; less is not felt
WORTH_SHARE = 0.01
WORTH_HELD = 0.2  # world region, flapping: the part of the floor WORTH_SHARE that held answers must reach
# judgement: quantiles at which a hedge may start if a second has a value
VALUED_STARTS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
# world correlated: the share of the savings of independent attempts that is believed until audits tell
KEPT_PRIOR = 0.75
KEPT_STEP = 0.05  # bound: steps of that share, so that lineups can be kept
KEPT_MEMORY = 1000  # judgement: after so many audits the earlier ones count half
RESCUE_FACTOR = 2.0  # world halfhang: a primary that is silent for this many times its p95 counts as hanging
RESCUE_MIN_S = 0.6  # world halfhang: no rescue starts sooner
# world unseen: the latest rescue, as a share of the first token's time-out, so that the rescue may still answer
RESCUE_IN_TIME = 0.75
# judgement: the quantile of the primary's first clauses after which a rescue starts; its rivals already run
RESCUE_SPOKEN_QUANTILE = 0.75
# judgement: the rescue starts at this many times that quantile: all are late, and a caller hears the silence
RESCUE_SPOKEN_FACTOR = 1.25
# judgement: while no attempt has begun to speak, another starts sooner by the time that the primary needs for so many
# tokens
SPOKEN_LEAD_TOKENS = 8.0
# judgement: after so many tokens an attempt that has begun to speak has a clause of ten words
SPOKEN_CLAUSE_TOKENS = 15.0
# judgement: the part of the budget for which hedges by first clauses are planned: some are not needed after all
SPOKEN_HEDGED_PART = 1.1
RESCUE_UNKNOWN_S = 7.3  # bound: twice the fixed prior's p95: latest rescue where nothing is known, or some hang
LATE_FACTOR = 3.0  # judgement: at this many times the q90 of first tokens another model is asked beside the late one
LATE_QUANTILE = 0.9  # judgement: the quantile for LATE_FACTOR: the p95 is useless where one attempt in twenty hangs
# judgement: an effort whose median and q90 differ by less than this factor is no population of its own
EFFORT_ALIKE = 1.5
SILENT_SHARE = 0.25  # judgement: a model that is silent for this share of ttft_timeout_s is reported as out
SILENT_ATTEMPTS = 3  # judgement: attempts that must be silent for SILENT_SHARE: one long thought is no outage
LATE_UNKNOWN_S = 10.0  # judgement: with fewer than KNOWN_EVENTS first tokens no other model is asked sooner
# judgement: at a deployment that never answered, two calls that hang halve the time until another model is asked,
# three make it a third, four or more a quarter
LATE_HANGING = 4
RUN_ON_EVERY = 10  # judgement: one of so many overtaken known primaries runs on to its first token
IN_TIME_QUANTILE = 0.75  # judgement: a deadline asks no other model before this quantile of first tokens
LINEUPS_KEPT = 4096  # bound: combinations of model, sizes, objective and deployments
LINEUPS_WARMED = 100  # bound: of one model: takes some milliseconds
# bound: after its last use a lineup is still updated in the background
LINEUPS_WARM_S = 10.0

# Load: found in a simulation where all calls went to the fastest decoder; elsewhere it changes nothing
LOAD_HALF_LIFE_S = 300.0  # world herd, bursts: the effect of load must still be known when the next burst comes
# world herd, bursts: the prior's weight, in samples x variance of ln(1 + in flight): a dozen are not enough for a fit
LOAD_PRIOR = 2.0
# world herd, bursts: standard errors subtracted from the slope, so that noise reduces no traffic
ELASTICITY_DOUBT = 1.5
ELASTICITY_MAX = 0.8  # world herd, bursts: steeper slopes are those of an overloaded queue
# world herd, bursts: a factor on the effect of load: the provider has more in flight than this replica knows
LOAD_GAIN = 4.0
SURPRISE_HALF_LIFE_S = 4.0  # world herd, bursts: recent first tokens show other replicas' new load
SURPRISE_PRIOR = 2.0  # world herd, bursts: first tokens; pulls the surprise to 0
SURPRISE_MAX = 2.0  # bound: of ln(ttft), what one first token can count
CROWDING_MAX = 16.0  # bound: maximum factor, up and down

# Prompt caches
PREFIX_BYTES = (4_096, 8_192, 16_384, 32_768, 65_536)  # vendors: 4 KB are 1,024 tokens; vendors cache no shorter prompt
CONVERSATION_BYTES = 1_024  # judgement: a longer request stays with one key: vendors may cache its next turn
CACHE_WARM_S = 300.0  # vendors: a cache is warm for so long after its last use: the shortest time that vendors promise
CACHE_MISSES = 2  # judgement: after so many misses in a row no cache is expected: a single miss may be chance
PREFIXES_KEPT = 20_000  # bound: per replica
# judgement: a prompt does not go to its rendezvous deployment if this many times its share, plus HOME_SLACK, is in
# flight there
HOME_LOAD = 1.5
HOME_SLACK = 4.0  # judgement: attempts in flight beyond that load

# The budget
BURST_CALLS = 20.0  # judgement: unspent dollars are kept for so many calls: for a burst, not for a night
BURST_TOKENS = 20.0  # tuned: extra attempts that a quiet model has saved; the bucket starts full
RESCUED_SHARE = 0.25  # judgement: rescues per call for which no budget has to pay
RESCUED_OF = 200  # judgement: the latest calls of a model, in which RESCUED_SHARE is counted
# judgement: added to ln(value of a second) when in an hour nothing of a mean hour's dollars is spent: follows hours,
# not minutes
PACE_GAIN = 1.6
PACE_EVERY_S = 60.0  # bound: between two steps: replicas know what the others have spent
PACE_STEP_MAX = 1.0  # bound: of ln(value of a second) in one step
# judgement: ln(100): an attempt that saves 10 ms is bought
PACE_MOST = 4.6
PACE_LEAST = -9.2  # bound: ln(1/10,000): nothing is bought
PACE_FAIR = 0.4  # judgement: the same as PACE_GAIN, for a replica's own part
PACE_MEMORY_S = 3600.0  # judgement: the memory of a replica's share of all calls
PACE_MEMORY = 200  # judgement: attempts in the mean cost of an attempt
PACE_PRIOR = 0.1  # judgement: this part of a mean hour's calls is added to each hour of the day before

# Failures
COOL_MIN_S = 1.0  # judgement: the pause after a 429 without retry-after; doubled while 429s go on
COOL_MAX_S = 60.0  # bound: a longer retry-after is not believed
STRIKES = 4  # tuned: failures in a row that open the breaker
# judgement: an attempt cancelled before this many times a usual first token lost by a hair, which says nothing
HAIR = 1.25
# world hang: -ln of the probability of so many attempts cancelled at such ages without a first token:
# 1 in 10^6
SILENCE = 14.0
DOUBTED_KEPT = 256  # bound: samples since the last first token, which may belong to a fault
KNOWN_EVENTS = 10.0  # judgement: silence counts against a deployment only with so many first tokens in memory
# judgement: so many clients in a row that gave up open the breaker, if the deployment is unknown or all of them are
# one client
LEFT_ALONE = 12
# judgement: late attempts in a row that open the breaker of a deployment that is unknown or was overtaken
UNANSWERED = 12
LEFT_UNKNOWN_S = 5.0  # judgement: a client that leaves sooner proves nothing
OPEN_S = 5.0  # tuned: the first time for which a breaker is open; doubled at each opening
OPEN_MAX_S = 20.0  # world hang, longhang: longest opening
PROBE_EVERY_S = 3.0  # tuned: a half-open deployment is tried by one request at a time
# tuned, world slowdown: a first token later than this many p95 is a strike, and a probe's within
# it closes the breaker
PROBE_FACTOR = 3.0
# judgement: no first token within this is late
LATE_MIN_S = 0.25
OWN_TURNS = 4.0  # judgement: a first token may have waited for so many turns of the gateway's own event loop
OWN_SHARE = 0.5  # judgement: of a time-out: if the gateway's own delay may be so much of it, it is no strike
PROBE_WATCH_S = 30.0  # bound: the maximum for probes
UNPROBED_S = 60.0  # judgement: after so long half-open without a probe one call uses the deployment on trial
ON_TRIAL_S = 600.0  # judgement: for so long after a trial the deployment is reported as broken, unless it answers
TRIAL_HEDGED_S = 1.0  # judgement: another attempt starts beside a trial no later than this
OUT_PROBE_EVERY_S = 60.0  # bound: an operator must correct it

# Strikes across replicas
WELL_S = 5.0  # world replicas: a first token outweighs other replicas' reports for so long
STRIKE_NEWS_S = 15.0  # world replicas: a failure is reported for so long
REPORT_AGE_S = 5.0  # bound: two of the longest rounds: a replica without a report is gone
REPORT_KEPT_S = 60.0  # bound: then any replica deletes the report of one that is gone
TURN_S = 0.05  # judgement: between two calls that wait for limits: a refusal is back by then
TURNS_S = 1.0  # judgement: waiting calls are spread over this time; further ones come together
PRICE_STEP_S = 0.2  # tuned: added to the score by each 429
PRICE_MAX_S = 10.0  # tuned: added to the score at most
PRICE_HALF_LIFE_S = 120.0  # tuned: of what 429s added to the score
PRICE_MIN_S = 0.001  # bound: less is treated as 0
# judgement: after the last 429's pause its deployment counts as limited for so long
LIMIT_KEPT_S = 300.0
LIMIT_USED = 0.9  # world limited: the part of a rate limit that primaries and extra attempts may use together
# world limited: so many requests admitted in the minute before a 429 show an account that others have, too
WARY_FROM = 30
LIMIT_GROWS = 1.25  # world limited, ratelimit: each minute this many times the requests admitted lately are tried
TOLD_FROM = 5  # statistics: launches in a minute before the unused part of a limit shows how large the limit is
# vendors: a 429 with a shorter wait is of a limit that refills steadily
REFILLED_S = 5.0
# world limited: the calls of so many seconds, whichever are more, are expected to go on
DEMAND_S = (10, 30)

# Quality of answers
# statistics: ln: a healthy deployment is demoted at most once in e^15 judged answers
FLAW_ALARM = 15.0
# judgement: the part of FLAW_ALARM that one client's answers may add: a demotion takes three clients
FLAW_CLIENT_SHARE = 0.4
PAIR_CLIENT_SHARE = 0.6  # judgement: the same if two clients have nearly all answers: both are needed
LONE_CLIENT_SHARE = 1.0  # bound: the same if one client has nearly all
FLAW_CLIENTS_OF = 0.95  # judgement: this part of the latest answers counts as nearly all
# judgement: the half-life of a client's part of recent attempts, by which one client's failures are weighed
CLIENTS_HALF_LIFE_S = 60.0
RESTORED_ODDS = 20.0  # judgement: at these odds of being as good as its peers a demoted deployment returns
FLAWED_TIMES = 3.0  # judgement: this many times the peers' rate of flaws counts as worse
FLAWED_STEP = 0.05  # judgement: so large a share of flaws beyond the peers' rate counts as worse
FLAWED_RATE_MAX = 0.9  # bound: if the peers' own rate is near this, none is worse
FLAW_RATE_Z = 2.58  # statistics: standard errors, for the upper end of the peers' rate
FLAW_RATE_MIN = 0.005  # bound: with a rate of 0, one flaw would be a proof
QUALITY_MEMORY = 2_000.0  # judgement: after so many answers of a deployment the older ones count half
EXPLORE_FLAWED_SHARE = 0.01  # judgement: the share of calls that a demoted deployment gets, so that it can return

# The published leaderboard
PUBLISH_EVENTS = 3  # judgement: with fewer first tokens a quantile is not published
Z_95 = 1.96  # statistics: half-width of a 95 % interval in standard errors
LEAST_AUDITS = 30  # statistics: so many audited attempts may represent all overtaken ones
# judgement: so many of the last answers decide whether a deployment's answers come out of a buffer
BUFFERED_ANSWERS = 20
