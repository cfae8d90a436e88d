#!/usr/bin/env bash
# The step of action.yml: its inputs are environment variables, so no input is ever read as a command.
set -uo pipefail

# An annotation is one line, in which % begins an escape.
said() { tr '\r\n' '  ' <<< "$1" | sed 's/%/%25/g; s/ *$//'; }
refuse() { echo "::error::$(said "$1")"; exit 2; }

case "${TOO_LITTLE_DATA:-fail}" in
  fail | pass) ;;
  *) refuse "too-little-data is fail or pass, not $TOO_LITTLE_DATA" ;;
esac
[[ "${ROUNDS:-1}" =~ ^[1-9][0-9]*$ ]] || refuse "rounds is a whole number from 1, not $ROUNDS"
[[ "${MAX_USD:-1}" =~ ^[0-9]+(\.[0-9]+)?$ ]] || refuse "max-usd is a number of dollars as in 1.50, not $MAX_USD"
[[ "${URL:-http://}" =~ ^https?:// ]] || refuse "url begins with http:// or https://, not as $URL"
[ -z "${CONFIG:-}" ] || [ -f "$CONFIG" ] || refuse "config: there is no file $CONFIG"
[ -z "${AGAINST:-}" ] || [ ! -d "$AGAINST" ] || refuse "against is a file, $AGAINST is a folder: add /bench.jsonl"
folder="${FOLDER:-holeshot-bench}"
case "$folder" in *$'\n'*) refuse "folder is one line, not $folder" ;; esac
mkdir -p "$folder" || refuse "folder: $folder cannot be made"
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

holeshot bench "${arguments[@]}" 2>&1 > "$folder/bench.json" | tee "$folder/errors.txt" >&2
code=${PIPESTATUS[0]}
reason=$(sed -n 's/^holeshot: //p' "$folder/errors.txt" | tail -n 1)
rm -f "$folder/errors.txt"

case $code in
  0) outcome=${judged:+holds}; outcome=${outcome:-measured} ;;
  3) outcome=broken; echo "::error::holeshot bench: a goal is broken, or the earlier run was better" ;;
  4) outcome=undecided; echo "::warning::holeshot bench: too little data to judge; more rounds would tell" ;;
  *) outcome=failed; echo "::error::$(said "holeshot bench could not measure (exit code $code)${reason:+: $reason}")" ;;
esac
{
  echo "outcome=$outcome"
  echo "folder=$folder"
} >> "$GITHUB_OUTPUT"
[ -s "$folder/bench.md" ] && cat "$folder/bench.md" >> "$GITHUB_STEP_SUMMARY"
if [ "$code" = 4 ] && [ "${TOO_LITTLE_DATA:-fail}" = pass ]; then code=0; fi
exit "$code"
