/** What judgements read with, over a chain with memory or without. */
import { createRoundReader } from '../../chain/questions.js'
import type { Contracts } from '../../chain/round.js'
import type { Chain, Signer } from '../../ports.js'
import type { RecoverPublicKey } from '../../protocol/recovered.js'
import { mostGas } from '../executor/packing.js'
import { createSimulations } from '../executor/simulations.js'
import { type FeeOffer, offerFor } from '../executor/transaction.js'
import type { GasCeilings } from '../executor/wallet-gas.js'
import type { Ledger } from '../ledger/ledger.js'
import { readBitmap } from '../validation/contract-reads.js'
import type { HeadReads } from '../validation/head-reads.js'
import { nonceBitmap } from '../validation/nonce-bitmap.js'
import type { JudgePorts, ProposalCall } from '../validation/validation.js'
import type { LiveView } from '../view/view.js'
import { tokenOf } from './competing-claims.js'

interface JudgeParts {
  readonly ledger: Ledger
  readonly view: LiveView
  readonly contracts: Contracts
  readonly config: { readonly executor: { readonly batch: number } }
  readonly signer: Signer | undefined
  offer(): Promise<FeeOffer | undefined>
  readonly recover?: RecoverPublicKey | undefined
  turn(): Promise<void>
  isAlone(call: ProposalCall): boolean
}

/** What the executor would offer for gas at the newest head; see `offerFor`. */
export function createOffer(
  {
    view,
    contracts,
    config,
    signer,
    ceilings,
  }: Pick<JudgeParts, 'view' | 'contracts' | 'signer'> & {
    readonly config: { readonly executor: { readonly max_fee_gwei: number } }
    readonly ceilings: GasCeilings
  },
  chain: Chain,
): JudgeParts['offer'] {
  return async () => {
    const head = view.heads()?.latest
    if (head === undefined || signer === undefined) return undefined
    const { max_fee_gwei: maxFeeGwei } = config.executor
    const by = { chainId: contracts.chainId, executor: signer.address, maxFeeGwei, head }
    return offerFor(chain, by, { leastGas: ceilings.proposal, mostGas })
  }
}

/** Over the reads of a chain; without a signer nothing is run. */
export function judgePorts(
  parts: JudgeParts,
  reads: Pick<HeadReads, 'chain' | 'once'>,
): JudgePorts {
  const { view, contracts, config, signer, offer, recover, turn, isAlone } = parts
  const { chain } = reads
  // A token that stops answering is found by what is judged, not by its name.
  const rounds = createRoundReader(chain, contracts, view.rounds.tokenOf)
  const { batch: maxBatch } = config.executor
  return {
    chain,
    contracts,
    bitmapOf: (owner, at) =>
      reads.once(at, `bitmap ${owner}`, async () =>
        nonceBitmap((word) => readBitmap({ chain, contracts }, owner, word, at)),
      ),
    // Decoded once: a long text takes longer to read than to ask for.
    readRound: (id, at) => reads.once(at, `round ${id}`, () => rounds.read(id, view.entry(id), at)),
    executor: signer?.address,
    recover,
    simulate: signer
      ? createSimulations({
          ...{ reads, contracts, offer, maxBatch, turn, isAlone },
          executor: signer.address,
        })
      : async () => undefined,
    tokenOf: (candidate) => tokenOf(parts, candidate),
    noteNonces: view.noteNonces,
  }
}
