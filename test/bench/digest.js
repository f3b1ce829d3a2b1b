import { hashTypedData } from 'viem'
import { figure, inTurn, microsecondsPerCall } from './measure.js'

const domain = {
  chainId: 137,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signedProposer: '0x1111111111111111111111111111111111111111',
}
const token = '0x2222222222222222222222222222222222222222'
const request = {
  oracle: '0x3333333333333333333333333333333333333333',
  requester: '0x4444444444444444444444444444444444444444',
  identifier: `0x${Buffer.from('YES_OR_NO_QUERY').toString('hex').padEnd(64, '0')}`,
  timestamp: '1760000000',
  ancillaryData: `0x${Buffer.from('q: title: a question of usual length, '.repeat(40)).subarray(0, 1434).toString('hex')}`,
}
const terms = (n) => ({
  price: n % 2 === 0 ? '0' : '1000000000000000000',
  amount: '750000000',
  nonce: String(n),
  deadline: '1760003600',
})

/**
 * Row 4: of an authorization with 1.4 KB of ancillary data.
 */
export async function digestRow({ library }) {
  const { typedData, witnessRound, witnessTypes } = await library()
  const round = witnessRound(domain, request, token)
  const viem = (n) => {
    const { price, amount, nonce, deadline } = terms(n)
    return hashTypedData({
      domain: { name: 'Permit2', chainId: domain.chainId, verifyingContract: domain.permit2 },
      types: witnessTypes,
      primaryType: 'PermitWitnessTransferFrom',
      message: {
        permitted: { token, amount: BigInt(amount) },
        spender: domain.signedProposer,
        nonce: BigInt(nonce),
        deadline: BigInt(deadline),
        witness: {
          ...request,
          timestamp: BigInt(request.timestamp),
          proposedPrice: BigInt(price),
          maxPayment: 0n,
        },
      },
    })
  }
  const hex = (bytes) => `0x${Buffer.from(bytes).toString('hex')}`
  for (const n of [0, 1, 257]) {
    const ours = hex(round.digest(terms(n)))
    if (ours !== viem(n) || ours !== hashTypedData(typedData(domain, request, token, terms(n))))
      throw new Error('the digests differ')
  }
  const [peer, ours, first] = await inTurn(7, [
    () => microsecondsPerCall(viem, 150),
    () => microsecondsPerCall((n) => round.digest(terms(n)), 150),
    () => microsecondsPerCall((n) => witnessRound(domain, request, token).digest(terms(n)), 150),
  ])
  return {
    id: 4,
    name: 'digest beside viem hashTypedData',
    value: peer / ours,
    unit: 'x',
    detail: `viem ${figure(peer)} µs, ours ${figure(ours)} µs in a round prepared once, ${figure(first)} µs with its preparation; medians of 7, in turn`,
  }
}
