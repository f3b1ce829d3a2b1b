/** What earlier versions or other verbs have, and what stands for it (contract §10). */

const wide = 'In a pipe nothing is cut, and --json has every field.'

const details =
  'Every row is in --json and --ndjson; `proposer journal list` shows the signed ones.'
const ofOwners =
  'Owners of a Safe sign one document at a time: `proposer sign <identifier> --outcome <answer> --safe <address> --as-owner`.'
const ofSafe =
  'A Safe sends its transactions itself: name it with --proposer, and add --print for the calldata.'

export const dropped: Readonly<Record<string, string>> = {
  'batch sign --safe': ofOwners,
  'batch submit --safe': ofOwners,
  'demo --gateways':
    'Two gateways on one PostgreSQL: start `proposer serve` twice with the same "store", or use compose.yaml of deploy/.',
  'devchain fail-transfer': 'A chain to practise on refuses no transfer any more.',
  'devchain set-reward': 'The reward of a practised question stays what it was asked with.',
  'devchain upgrade-oracle':
    'Start a chain with version 3 of the oracle: `proposer devchain --oracle v3`.',
  'journal list --wide': wide,
  'operator candidates list --wide': wide,
  'operator candidates list --status': 'Use --state.',
  'funds approve --safe': ofSafe,
  'operator positions':
    'Disputes are followed outside the service: the proposer has `proposer positions`.',
  'positions --webhook': 'Use --exec: docs/proposing.md has a script that posts each dispute.',
  'positions --webhook-secret-file': 'Use --exec: the script that it runs can sign what it posts.',
  'operator questions list --wide': wide,
  'positions --wide': wide,
  'questions list --wide': wide,
  'payouts claim --safe': ofSafe,
  'payouts claim --token': 'It claims what is deferred of every pinned token.',
  'submit --details':
    '`proposer submit --dry-run` shows everything before, `proposer journal show <journal-id>` after.',
  'plan --limit': 'The limit is the one that the gateway has reported, else 120 items a minute.',
  'plan --window': 'The window is the one that the gateway has reported, else a minute.',
  'revoke --safe': ofSafe,
  'run --details': details,
  'batch submit --details': details,
  'payouts list --wallet': 'Name the wallet with --proposer.',
  'run --safe': ofOwners,
  'run --wait': '`proposer run` always waits, to the end of each candidate or of --timeout.',
  'demo --store-url': 'Give the database as "store" in gateway.json to `proposer serve`.',
}
