"""Every constant of the policy, with its unit and the reason it is what it is.

docs/policy.md#constants has them in a table, with where each value came from: most were chosen by simulation over eight
worlds of six providers, later ones for worlds that show a weakness, some are bounds or judgement.
"""

# Histograms
BUCKETS_PER_OCTAVE = 8  # 9 % per bucket: finer than any provider's latency is steady
FIRST_EDGE_S = 0.010  # nobody answers sooner
BUCKETS = 112  # 14 octaves, to 163.84 s: beyond every first-token clock

# The board
SLOT_S = 30  # one histogram per slot; short enough to forget by, long enough to write rarely
SLOTS_KEPT = 20  # ten minutes; the oldest weighs 4 %
HALF_LIFE_S = 120.0  # providers drift over minutes
STANDINGS_AGE_S = 1.0  # a snapshot is used this long before it is made again
REFRESHED_AT_LEAST_S = 5.0  # without a refresh in the background for so long, calls make their snapshots themselves
REFRESH_MOST_S = 0.005  # in one slice, after which other work has its turn; one model's is not divided
REFRESH_EVERY_S = 0.1  # in the background; a slice of what a second allows
CURVES_PER_S = 200  # that are made again in the background: 2 % of a core
KEY_EXPIRY_S = 900  # Redis forgets a slot, and what marks repeated flushes with it, after all replicas have
FLUSH_S = 1.0  # increments leave at least this often
LATE_MERGE_S = 30.0  # all slots, not just the newest two, are read this often: others may have flushed late
REDIS_TIMEOUT_S = 1.0  # nobody waits for Redis; this only bounds one round of the background task

# What is remembered beyond the board's ten minutes, for models with few calls, and to know what is usual
MEMORY_HALF_LIVES_S = (6 * 3600.0, 1800.0)  # a working day, and a spell of weather; the longest first
MODELS_REMEMBERED = 1000  # the last called

# Back to usual
REBOUND_AT = 4.0  # e^4: fifty times likelier as usual than as lately
REBOUND_FROM = 1.25  # times as slow lately as usual: with less there is nothing to forget
REBOUND_STEP = 2.5  # what one first token can add: two have to agree
SUSPECT = 1.8  # times as slow lately as usual: it may be over, and is asked again more often than by chance
SUSPECT_EVERY_S = 4.0  # by one call, beside the primary
SUSPECT_SHARE = 0.25  # of the calls after that: where calls are rare, most are left alone

# The size of prompts
SIZE_REFERENCE_TOKENS = 1000.0  # times in the policy's histograms are as of such a prompt
KNEE_PRIOR_TOKENS = 8000.0  # where reading the prompt takes as long as all else; typical of hosted models
KNEE_DOUBT = 1.2  # standard deviation of ln(knee) among deployments: a factor of three
SIZE_NOISE = 0.5  # standard deviation of ln(ttft) at one size
KNEE_HALF_LIFE_S = 3600.0  # a law of the hardware, not of the weather

# The estimator
PRIOR_EVENTS = 4.0  # weight of the pool in a deployment's histogram: a few samples of its own outvote it
EXPECTED_FROM_EVENTS = 30.0  # of its own, until a curve says what an overtaken primary would have taken
FIXED_PRIOR_EVENTS = 2.0  # weight of the fixed prior in the pool
FIXED_PRIOR_MEDIAN_S = 0.7  # with a prompt of the reference size: a typical hosted model
FIXED_PRIOR_SIGMA = 1.0  # of ln(seconds): wide, it must not argue with samples
MEAN_CAP_S = 30.0  # the mean is restricted to this, so that one hung attempt does not outweigh all others
ERROR_PRIOR = (0.05, 5.0)  # errors, attempts: 1 %
SPEED_PRIOR = (2.0, 1 / 30)  # tokens, seconds of decoding: 60 tok/s, outvoted by one loser watched for 32 tokens
AT_ONCE_TPS = 5000.0  # of who sends whole answers at their end; no provider decodes faster
SPEED_KNOWN_S = 0.5  # with less decoding watched lately, nothing is held against a deployment's speed
ANSWER_PRIOR = (250.0, 100.0)  # tokens per answer, answers: chat and extraction mixed
SUCCESS_FLOOR = 0.1  # an error rate can lengthen a score at most tenfold

# The expected length of an answer, by the kind of call; this replica's own
LENGTH_PRIOR = 2.0  # answers: so much counts what the coarser cell says; kinds differ far more than answers of one do
LENGTH_MEMORY = 50.0  # answers a cell is the mean of: prompts get changed, and an error of 5 to 10 % is little
LENGTH_STEPS_PER_OCTAVE = 4  # a prediction's steps: 19 %, finer than any is true, and few plans to be kept
LENGTH_CELLS_KEPT = 4096  # 200 bytes each, of all clients; the longest unused go first
TAG_VALUES_KNOWN = 32  # a tag with more values is an id, and tells nothing of the next call
TAG_KEYS_KNOWN = 32  # of a model; more are a stranger's
TAGS_FORGOTTEN_AFTER = 10_000  # tagged answers: then which tags are ids is found out again, as versions come and go

# Smoothness
STALL_FROM_S = (
    0.5  # of silence in an answer are no stall: a pause one hardly notices, and usual between bursts of tokens
)
STALL_PRIOR = 5.0  # answers as usual: one unlucky answer of 5 s must not outweigh a better start

# Reading
# A second that the whole answer comes sooner is worth 50 ms of the first token, also to who reads no faster than the
# slower one decodes: people skim, copy and stop reading.
WHOLE_SHARE = 0.05

# Choosing
NEAR = 1.5  # deployments within this factor of the best share the traffic: herding, unseen congestion
SPREAD_EXPONENT = 12  # draw weight (best/score)^12: 10 % slower gets a third of the draws
EXPLORE_NEW_SHARE = 0.25  # while nothing at all is known of one of them, how fast it decodes for one
EXPLORE_SHARE = 0.02  # of calls try, on a spare slot, who was not asked for longest
MEETS_QUANTILE = 0.9  # who keeps ttft_ms does so nine times in ten; the tenth is what the hedge is for
HEADROOM_LOW = 0.2  # with less of a rate limit left, the draw weight falls in proportion, before a 429 comes
HEADROOM_WEIGHT_MIN = 0.02  # nobody is shut out by what may be an old figure
HEADROOM_WINDOW_S = 60.0  # limits are per minute and refill steadily: what was used has come back after one
COLD_EVENTS = 3  # with fewer first tokens a primary is unknown and gets company at once; likewise its speed
HEDGE_SHARE = 0.1  # hedging at the 90 % quantile costs this much; a larger budget buys races
HEDGE_MIN_S, HEDGE_MAX_S = 0.05, 10.0
RESCUE_FACTOR = 4.0  # times the primary's q95: it hangs
RESCUE_MIN_S, RESCUE_MAX_S = 1.5, 15.0
NEXT_AT_LATEST_S = 20.0  # the next candidate starts by then, whatever the estimates say
LINEUPS_KEPT = 4096  # models, sizes of prompts and answers, objectives and who of the deployments can answer
LINEUPS_WARMED = 100  # of one model at most: some milliseconds
LINEUPS_WARM_S = 10.0  # since its last use a lineup is made again in the background when there are new standings

# Load: found in the herd world, where everybody crowded into the fastest decoder; elsewhere they change nothing
LOAD_HALF_LIFE_S = 300.0  # a law of queueing outlives the weather: it must still be known when the next burst comes
LOAD_PRIOR = 2.0  # in samples x variance of ln(1 + in flight): a dozen first tokens do not yet make a law
ELASTICITY_DOUBT = 1.5  # standard errors taken off the slope: where nobody queues, chance must not keep us away
ELASTICITY_MAX = 0.8  # steeper slopes are those of a queue that has already collapsed
LOAD_GAIN = 4.0  # what this replica has in flight is a part of what is there, and queues grow faster than a power fits
SURPRISE_HALF_LIFE_S = 4.0  # what the other replicas just sent there shows in the first tokens of the last seconds
SURPRISE_PRIOR, SURPRISE_MAX = 2.0, 2.0  # first tokens; of ln(ttft), what one of them can count
CROWDING_MAX = 16.0  # to either side
CROWDED = 1.25  # a budget's racer that is so crowded starts as a hedge instead: it would slow what it is to speed up

# Prompt caches
PREFIX_BYTES = (4_096, 8_192, 16_384, 32_768, 65_536)  # 4 KB are the 1,024 tokens below which vendors cache nothing
CACHE_WARM_S = 300.0  # since the last use: the least that vendors promise
CACHE_MISSES = 2  # in a row, and no cache is expected: one alone may be chance, caching is best effort
PREFIXES_KEPT = 20_000  # per replica
# A prompt is not sent where its first bytes say if there is more in flight than so many times its share, and so many.
HOME_LOAD, HOME_SLACK = 1.5, 4.0

# The budget
BURST_CALLS = 20.0  # the dollars of so many calls are saved up: a burst, but no night's worth
BURST_TOKENS = 20.0  # extra attempts a quiet model has saved up; the bucket starts full

# Failures
COOL_MIN_S = 0.5  # a 429 without retry-after
COOL_MAX_S = 60.0  # the most a retry-after is believed
STRIKES = 4  # in a row open the breaker
SILENCE = 14.0  # -ln of the chance that so many attempts have no first token by the ages they were cut at: 1 in 10^6
DOUBTED_KEPT = 256  # samples of a deployment since its last first token, which may be those of a fault
KNOWN_EVENTS = 10.0  # remembered of a deployment, from which on that is held against it
OPEN_S, OPEN_MAX_S = 5.0, 20.0  # doubled with each opening; who is well again has its calls back within half a minute
PROBE_EVERY_S = 3.0  # a half-open deployment is tried by one request at a time
PROBE_FACTOR = 3.0  # a first token later than so many q95 is a strike; one of a probe within them closes the breaker
PROBE_WATCH_S = 30.0  # but no probe is watched for longer
UNPROBED_S = 60.0  # half-open and nobody probed it (calls in mode single never do): it is let in again on trial
OUT_PROBE_EVERY_S = 60.0  # a refused key or unknown model is mended by hand, if at all
# Strikes across replicas
WELL_S = 5.0  # so long a first token outweighs what other replicas report
STRIKE_NEWS_S = 15.0  # a failure is told so long; where it is not repeated, it was not an outage
REPORT_AGE_S = 5.0  # five rounds: who has not reported for so long is gone, or has a clock that is wrong
REPORT_KEPT_S = 60.0  # then anybody removes the report of a replica that is gone
PRICE_STEP_S, PRICE_MAX_S = 0.2, 10.0  # added to the score by each 429: scarce capacity is for when it is worth it
PRICE_HALF_LIFE_S = 120.0
PRICE_MIN_S = 0.001  # less is nothing

# Quality of answers
FLAW_ALARM = 15.0  # ln: at one judged answer a second a healthy deployment is demoted at most once in e^15 s, 38 days
FLAW_CLIENT_SHARE = 0.4  # of FLAW_ALARM, from one client: three are needed, and need not all be at their limit at once
PAIR_CLIENT_SHARE = 0.6  # the same where two clients have nearly all answers: both are needed
LONE_CLIENT_SHARE = 1.0  # the same where one has
FLAW_CLIENTS_OF = 0.95  # of the latest answers are nearly all: who has few is not waited for
RESTORED_ODDS = 20.0  # for being as good as the peers; a mistake costs little, it is found out again
FLAWED_TIMES, FLAWED_STEP = 3.0, 0.05  # worse is three times the peers' rate of flaws, and five in a hundred more
FLAWED_RATE_MAX = 0.9  # where the peers themselves come near it nobody is worse
FLAW_RATE_Z = 2.58  # standard errors: of the peers' rate the upper end of the 99 % interval is taken
FLAW_RATE_MIN = 0.005  # a rate of 0 would make one flaw a proof
QUALITY_MEMORY = 2_000.0  # answers of a deployment; then those before count half
EXPLORE_FLAWED_SHARE = 0.01  # of calls are answered by a demoted deployment, or it could never return

# The published leaderboard
PUBLISH_EVENTS = 3  # below this many first tokens a quantile says nothing
Z_95 = 1.96  # half-width of a 95 % interval in standard errors
LEAST_AUDITS = 30  # of a deployment's overtaken attempts, from which on these stand for all that were overtaken
BUFFERED_ANSWERS = 20  # the last so many are asked whether they came at once
