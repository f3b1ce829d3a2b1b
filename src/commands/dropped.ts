/** What earlier versions had, and what stands for it now (contract §10). */

/** By the command as it is typed: a verb with its flag, or with its subverb. */
export const dropped: Readonly<Record<string, string>> = {
  'demo --gateways':
    'Two gateways on one PostgreSQL: start `proposer serve` twice with the same "store", or use compose.yaml of deploy/.',
  'demo --store-url': 'Give the database as "store" in gateway.json to `proposer serve`.',
}
