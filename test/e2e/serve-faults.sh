#!/usr/bin/env bash
# How a client fares when the answer to its submission is lost: nothing is signed twice, and the replay settles it.
set -euo pipefail
work=$(mktemp -d)
cat > "$work/faults.json" <<'JSON'
{ "rules": [
  { "on": { "route": "submit", "nth": 1 }, "do": { "act": "drop", "when": "after" } },
  { "on": { "route": "submit", "nth": 2 }, "do": { "act": "answer", "when": "before", "status": 503, "retry_after_seconds": 300 } }
] }
JSON

mkfifo "$work/ready"
proposer serve --dev --port 0 --json --faults "$work/faults.json" > "$work/ready" 2> "$work/serve.log" &
gateway=$!
trap 'kill "$gateway"; wait "$gateway" || true; rm -r "$work"' EXIT
read -r ready < "$work/ready"

of_ready() { node -e 'const ready = JSON.parse(process.argv[1]); console.log(eval(process.argv[2]))' "$ready" "$1"; }
umask 077
mkdir "$work/home"
of_ready 'ready.dev.accounts.find(({ role }) => role === "proposer").private_key' > "$work/key"
of_ready 'JSON.stringify(ready.dev.trust)' > "$work/trust.json"
export PROPOSER_HOME=$work/home PROPOSER_KEY_FILE=$work/key PROPOSER_TRUST=$work/trust.json
export PROPOSER_GATEWAY PROPOSER_RPC_URL
PROPOSER_GATEWAY=$(of_ready ready.url)
PROPOSER_RPC_URL=$(of_ready ready.dev.rpc_url)
question=$(of_ready 'ready.dev.questions[0].slug')

code=0
proposer submit "$question" --outcome p2 --yes || code=$?
test "$code" -eq 6 # unknown: the gateway may hold it, so the same bytes are sent again
proposer replay --all
proposer poll --all --timeout 60
grep -o '"message":"fault: [^"]*' "$work/serve.log" | cut -d '"' -f 4
