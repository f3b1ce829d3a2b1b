import { fromSources } from './sources.js'

/**
 * What the soak does to the dev chain, as the command line's `devchain` verbs do it; they are no
 * part of the library.
 */
const wanted = `
export { askDevQuestion, disputeProposal, fund } from './src/core/devchain/dev-verbs.js'
export { exampleQuestion } from './src/core/devchain/dev-questions.js'
export { topics } from './src/core/chain/contracts.js'
`

/** The dev chain's verbs, built from the sources; `remove` deletes the build. */
export async function chainVerbs(root) {
  const { module, remove } = await fromSources(root, wanted)
  return { verbs: module, remove }
}

/**
 * How many ProposePrice events the oracles have emitted in each round: a count by ancillary data
 * and timestamp.
 */
export async function proposalsByRound({ rpc_url, trust }, proposePrice) {
  const filter = {
    address: trust.oracles,
    topics: [proposePrice],
    fromBlock: '0x0',
    toBlock: 'latest',
  }
  const answer = await fetch(rpc_url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_getLogs', params: [filter] }),
  })
  const { result, error } = await answer.json()
  if (error !== undefined) throw new Error(`eth_getLogs: ${error.message}`)
  const counts = new Map()
  for (const { data } of result) {
    // identifier, timestamp, offset of the ancillary data, price, expiry, currency; then the
    // ancillary data.
    const timestamp = BigInt(`0x${data.slice(2 + 64, 2 + 128)}`)
    const round = `${data.slice(2 + 6 * 64)} ${timestamp}`
    counts.set(round, (counts.get(round) ?? 0) + 1)
  }
  return counts
}
