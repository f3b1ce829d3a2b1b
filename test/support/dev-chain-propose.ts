import { yesOrNoQuery } from '../../src/core/chain/contracts.js'
import type { DevChain } from '../../src/core/devchain/dev-chain.js'
import {
  callData,
  type DevAccount,
  devAddresses,
  devRpc,
  placedAt,
} from '../../src/core/devchain/dev-contracts.js'
import type { Hex } from '../../src/core/ports.js'
import type { Address } from '../../src/core/protocol/schema.js'
import { proposeArgs, signPayload } from './dev-chain-vectors.js'

export async function callPropose(
  chain: DevChain,
  slug: string,
  signer: DevAccount,
  nonce = 1n,
): Promise<{ to: Address; data: Hex }> {
  const questionId = chain.description.trust.slugs[slug]
  const adapter = placedAt('CtfAdapter', devAddresses.adapter)
  const question = await devRpc(chain.rpcUrl).read<{
    requestTimestamp: bigint
    ancillaryData: Hex
  }>(adapter, 'getQuestion', [questionId])
  const payload = await signPayload(
    {
      oracle: devAddresses.oracle,
      requester: devAddresses.adapter,
      identifier: yesOrNoQuery,
      timestamp: question.requestTimestamp,
      ancillaryData: question.ancillaryData,
    },
    {
      key: signer.private_key,
      proposer: signer.address,
      token: devAddresses.token,
      spender: devAddresses.signedProposer,
      permit2: devAddresses.permit2,
      chainId: chain.chainId,
      nonce,
    },
  )
  const signedProposer = placedAt('SignedProposer', devAddresses.signedProposer)
  return {
    to: signedProposer.address,
    data: callData(signedProposer, 'propose', proposeArgs(payload)),
  }
}
