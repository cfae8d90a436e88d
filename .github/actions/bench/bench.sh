#!/usr/bin/env bash
# The step of action.yml: its inputs are environment variables, so no input is ever read as a command.
set -uo pipefail

case "${TOO_LITTLE_DATA:-fail}" in
  fail | pass) ;;
  *) echo "::error::too-little-data is fail or pass, not ${TOO_LITTLE_DATA}"; exit 2 ;;
esac
folder="${FOLDER:-holeshot-bench}"
mkdir -p "$folder" || exit 1
rm -f "$folder"/bench.{jsonl,json,md,xml} # of an earlier step: a journal is never overwritten

arguments=(--yes --json --journal "$folder/bench.jsonl" --markdown "$folder/bench.md")
[ -n "${CONFIG:-}" ] && arguments+=(--config "$CONFIG")
[ -n "${URL:-}" ] && arguments+=(--url "$URL")
[ -n "${ROUNDS:-}" ] && arguments+=(--rounds "$ROUNDS")
[ -n "${CLASSES:-}" ] && arguments+=(--classes "$CLASSES")
[ -n "${MAX_USD:-}" ] && arguments+=(--max-usd "$MAX_USD")
judged=
while IFS= read -r line; do
  [ -n "${line//[[:space:]]/}" ] || continue
  arguments+=(--fail-if "$line")
  judged=yes
done <<< "${FAIL_IF:-}"
if [ -n "${AGAINST:-}" ] && [ ! -e "$AGAINST" ]; then
  echo "::notice::there is no $AGAINST to compare with: this run is not held against an earlier one"
elif [ -n "${AGAINST:-}" ]; then
  arguments+=(--against "$AGAINST")
  judged=yes
fi
[ -n "$judged" ] && arguments+=(--junit "$folder/bench.xml")
[ -n "${MODEL:-}" ] && arguments+=(-- "$MODEL")
[ -n "${HOLESHOT_KEY:-}" ] || unset HOLESHOT_KEY

holeshot bench "${arguments[@]}" > "$folder/bench.json"
code=$?

case $code in
  0) outcome=${judged:+holds}; outcome=${outcome:-measured} ;;
  3) outcome=broken; echo "::error::holeshot bench: a goal is broken, or the earlier run was better" ;;
  4) outcome=undecided; echo "::warning::holeshot bench: too little data to judge; more rounds would tell" ;;
  *) outcome=failed; echo "::error::holeshot bench could not measure (exit code $code)" ;;
esac
{
  echo "outcome=$outcome"
  echo "folder=$folder"
} >> "$GITHUB_OUTPUT"
[ -s "$folder/bench.md" ] && cat "$folder/bench.md" >> "$GITHUB_STEP_SUMMARY"
if [ "$code" = 4 ] && [ "${TOO_LITTLE_DATA:-fail}" = pass ]; then code=0; fi
exit "$code"
