-- How often answers are flawed, over all time; answer_quality_1h, _24h and _30d: lately.
--
-- For each model, deployment and kind of answer (judged_as: plain, tools, json) a row for each flaw, and one for any of
-- them (flaw 'any'). n: whole answers of winners that could be judged; share: of these, with the ends of its 95 %
-- interval (Wilson), which holds the truth also where no flaw was seen. Only compare deployments within a model and a
-- kind: refusals and empty answers depend on prompts too.
create view answer_quality as
with judged as (
  select model, deployment, provider, judged_as, flaw
  from attempts
  where judged_as is not null
  -- and attempts.started_at >= :since
),
counted as (
  select model, deployment, provider, judged_as, cast(count(*) as double precision) as n
  from judged
  group by model, deployment, provider, judged_as
),
flaws (flaw) as (
  values ('any'), ('empty'), ('truncated'), ('bad_tool_call'), ('unknown_tool'), ('bad_json'), ('schema_miss'), ('refusal')
),
flawed as (
  select
    counted.model, counted.deployment, counted.provider, counted.judged_as, flaws.flaw, counted.n,
    count(judged.flaw) as n_flawed
  from counted
  cross join flaws
  left join judged on judged.model = counted.model and judged.deployment = counted.deployment
    and judged.provider = counted.provider and judged.judged_as = counted.judged_as
    and (judged.flaw = flaws.flaw or flaws.flaw = 'any')
  group by counted.model, counted.deployment, counted.provider, counted.judged_as, flaws.flaw, counted.n
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
  share,
  (share + z2_n / 2 - sqrt(z2_n * (share * (1 - share) + z2_n / 4))) / (1 + z2_n) as share_low,
  (share + z2_n / 2 + sqrt(z2_n * (share * (1 - share) + z2_n / 4))) / (1 + z2_n) as share_high
from shares
