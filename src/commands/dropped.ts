/** What earlier versions or other verbs have, and what stands for it (contract §10). */

/** By the command as it is typed: a verb with its flag, or with its subverb. */
export const dropped: Readonly<Record<string, string>> = {
  'demo --gateways':
    'Two gateways on one PostgreSQL: start `proposer serve` twice with the same "store", or use compose.yaml of deploy/.',
  'operator positions':
    'Disputes are followed outside the service: the proposer has `proposer positions`.',
  'positions --webhook': 'Use --exec: docs/proposing.md has a script that posts each dispute.',
  'positions --webhook-secret-file': 'Use --exec: the script that it runs can sign what it posts.',
  'run --wait': '`proposer run` always waits, to the end of each candidate or of --timeout.',
  'demo --store-url': 'Give the database as "store" in gateway.json to `proposer serve`.',
}
