-- How often answers are flawed, answer_quality_24h and _30d: lately.
--
-- For each model, deployment and kind of answer (judged_as: plain, tools, json) a row for each flaw, and one for any of
-- them (flaw 'any'). n: whole answers of winners that could be judged; flawed_share: of these, with the ends of its 95 %
-- interval (Wilson), which holds the truth also where no flaw was seen. Only compare deployments within a model and a
-- kind: refusals and empty answers depend on prompts too.
with judged as (  -- one pass over the rows
  select model, deployment, provider, judged_as, flaw, cast(count(*) as double precision) as n
  from attempts
  where judged_as is not null
    {and since attempts.started_at}
  group by model, deployment, provider, judged_as, flaw
),
flaws (flaw) as (
  values ('any'), ('empty'), ('truncated'), ('bad_tool_call'), ('unknown_tool'), ('bad_json'), ('schema_miss'), ('refusal')
),
flawed as (
  select
    judged.model, judged.deployment, judged.provider, judged.judged_as, flaws.flaw,
    sum(judged.n) as n,
    cast(coalesce(sum(judged.n) filter (where judged.flaw = flaws.flaw or (flaws.flaw = 'any' and judged.flaw is not null)), 0)
      as bigint) as n_flawed
  from judged
  cross join flaws
  group by judged.model, judged.deployment, judged.provider, judged.judged_as, flaws.flaw
),
shares as (
  select *, n_flawed / n as share, 1.96 * 1.96 / n as z2_n from flawed
)
select
  model,
  deployment,
  provider,
  judged_as,
  flaw,
  cast(n as integer) as n,
  n_flawed,
  share as flawed_share,
  (share + z2_n / 2 - sqrt(z2_n * (share * (1 - share) + z2_n / 4))) / (1 + z2_n) as flawed_low_share,
  (share + z2_n / 2 + sqrt(z2_n * (share * (1 - share) + z2_n / 4))) / (1 + z2_n) as flawed_high_share
from shares
