import { createServer } from 'node:http'
import { keccak_256 } from '@noble/hashes/sha3'

const address = (digit) => `0x${digit.repeat(40)}`
const trust = {
  chain_id: 31337,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signed_proposer: address('5'),
  oracles: [address('a')],
  requesters: [{ address: address('b'), kind: 'uma-ctf-adapter' }],
  tokens: [address('c')],
}
const identifier = `0x${Buffer.from('YES_OR_NO_QUERY').toString('hex').padEnd(64, '0')}`
const rules =
  'This market resolves by the official announcement; where there is none, by the consensus of credible reporting. '.repeat(
    9,
  )

/**
 * Starts a gateway on loopback that knows `count` open questions and tells their contexts, and
 * nothing else. `trust` is what to pin for it; `close` ends it.
 */
export async function serveQuestions(count, { witnessTypes }) {
  const questions = new Map()
  for (let n = 0; n < count; n += 1) {
    const bytes = Buffer.from(
      `q: title: Question ${n}, description: ${rules}res_data: p1: 0, p2: 1. Where p1 corresponds to No, p2 to Yes.`,
    )
    questions.set(`0x${Buffer.from(keccak_256(bytes)).toString('hex')}`, bytes)
  }
  const contextOf = (questionId) => ({
    question_id: questionId,
    request: {
      question_id: questionId,
      oracle: trust.oracles[0],
      requester: trust.requesters[0].address,
      identifier: { raw: identifier },
      timestamp: '1760000000',
      ancillary_data: `0x${questions.get(questionId).toString('hex')}`,
    },
    identifier: { raw: identifier },
    price: { allowed_values: ['0', '1000000000000000000'] },
    bond: { token: trust.tokens[0], required_bond: '750000000' },
    contracts: { permit2: trust.permit2, signed_proposer: trust.signed_proposer },
    signing: {
      chain_id: trust.chain_id,
      max_payment: '0',
      primary_type: 'PermitWitnessTransferFrom',
      types: witnessTypes,
    },
  })
  const server = createServer((incoming, response) => {
    let body = ''
    incoming.on('data', (part) => {
      body += part
    })
    incoming.on('end', () => {
      const results = JSON.parse(body).identifiers.map((each) => ({
        identifier: each,
        status_code: 200,
        signing_data: contextOf(each),
      }))
      const budget = {
        'ratelimit-limit': '1000000',
        'ratelimit-remaining': '1000000',
        'ratelimit-reset': '60',
      }
      response.writeHead(200, { 'content-type': 'application/json', ...budget })
      response.end(JSON.stringify({ results }))
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    trust,
    questionIds: [...questions.keys()],
    close: () => server.close(),
  }
}
