/** What earlier versions had, and what stands for it now (contract §10). */

/** By the command as it is typed: a verb with its flag, or with its subverb. */
export const dropped: Readonly<Record<string, string>> = {
  'demo --gateways':
    'Two gateways on one PostgreSQL: start `proposer serve` twice with the same "store", or use compose.yaml of deploy/.',
  'operator positions':
    'Disputes are followed outside the service: the proposer has `proposer positions`.',
  'positions --webhook': 'Use --exec: docs/proposing.md has a script that posts each dispute.',
  'positions --webhook-secret-file': 'Use --exec: the script that it runs can sign what it posts.',
  'demo --store-url': 'Give the database as "store" in gateway.json to `proposer serve`.',
}
