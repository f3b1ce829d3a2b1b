/**
 * The main job done by a client that a well-known generator made from the served /openapi.json,
 * with the library's signer.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { generate } from 'openapi-typescript-codegen'
import { judgeAnswers, judgedAnswers } from '#support/answers-seen'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'
import type * as wire from '../../src/library.js'
import {
  type ChainAddress,
  type KeySigner,
  parseKey,
  priceOf,
  signerFromKey,
  version,
  witnessRound,
} from '../../src/library.js'

interface GeneratedClient {
  readonly OpenAPI: { BASE: string }
  readonly ApiError: new (
    ...args: never[]
  ) => Error & { readonly status: number; readonly body: wire.ErrorBody }
  readonly OutcomeKey: { readonly P1: 'p1'; readonly P2: 'p2'; readonly P3: 'p3' }
  readonly ProposalsService: {
    eligibility(address: string): Promise<wire.Eligibility>
    signingData(identifier: string, body: wire.SigningDataRequest): Promise<wire.SigningData>
    submit(identifier: string, body: wire.SignedProposal): Promise<wire.Acknowledgement>
    status(identifier: string, candidateId: string): Promise<wire.CandidateStatus>
  }
  readonly BatchService: {
    batchSigningData(body: { identifiers: string[] }): Promise<wire.BatchSigningDataAnswer>
    batchSubmit(body: { proposals: wire.BatchItem[] }): Promise<wire.BatchSubmitAnswer>
    batchStatus(body: { candidate_ids: string[] }): Promise<wire.BatchStatusAnswer>
  }
  readonly GatewayService: {
    health(): Promise<{ status: string }>
    readiness(): Promise<{ ready: boolean; reasons: string[] }>
    openapi(): Promise<Record<string, unknown>>
  }
}

// Polling as quickly as the test does would spend the usual one.
const budget = argvOf`--set budget.per_ip_items=100000 --set budget.global_items=100000`
const shop = workshop()

let folder: string
let ready: ServeReady
let client: GeneratedClient
let signer: KeySigner

beforeAll(async () => {
  folder = join(await shop.folder(), 'client')
  ready = await shop
    .start(argvOf`serve --dev --port 0 --questions 5 --json ${budget}`)
    .line<ServeReady>()
  const document = (await (await fetch(`${ready.url}/openapi.json`)).json()) as Record<
    string,
    unknown
  >
  await generate({ input: document, output: folder, httpClient: 'fetch' })
  const bundle = join(folder, 'client.mjs')
  await build({
    entryPoints: [join(folder, 'index.ts')],
    outfile: bundle,
    bundle: true,
    format: 'esm',
    platform: 'neutral',
    logLevel: 'error',
  })
  client = (await import(/* @vite-ignore */ pathToFileURL(bundle).href)) as GeneratedClient
  client.OpenAPI.BASE = ready.url
  const key = ready.dev.accounts.find(({ role }) => role === 'proposer')?.private_key
  signer = signerFromKey(parseKey(key ?? '', 'the dev chain'))
})

async function patiently<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof client.ApiError) || error.status !== 503) throw error
      await setTimeout(250)
    }
  }
}

const permit = (amount: string) => ({
  amount,
  nonce: BigInt(`0x${randomBytes(32).toString('hex')}`).toString(),
  deadline: String(Math.floor(Date.now() / 1_000) + 3_600),
})

interface Facts {
  readonly chainId: string
  readonly contracts: wire.SigningData['contracts']
  readonly request: Omit<wire.SigningData['request'], 'question_id'>
  readonly token: string
  readonly price: string
  readonly permit: { readonly amount: string; readonly nonce: string; readonly deadline: string }
}

function sign({
  chainId,
  contracts,
  request,
  token,
  price,
  permit: { amount, nonce, deadline },
}: Facts): Promise<ChainAddress> {
  const { trust } = ready.dev
  expect([chainId, contracts]).toEqual([
    String(trust.chain_id),
    { permit2: trust.permit2, signed_proposer: trust.signed_proposer },
  ])
  const domain = {
    chainId: trust.chain_id,
    permit2: trust.permit2 as ChainAddress,
    signedProposer: trust.signed_proposer as ChainAddress,
  }
  const round = {
    ...request,
    ancillaryData: request.ancillary_data,
  } as unknown as wire.WitnessRequest
  const digest = witnessRound(domain, round, token as ChainAddress).digest({
    price,
    amount,
    nonce,
    deadline,
  })
  return signer.signDigest(`0x${Buffer.from(digest).toString('hex')}`)
}

async function signed(
  identifier: string,
  outcome: wire.OutcomeKey,
): Promise<{ payload: wire.SignedProposal; data: wire.SigningData }> {
  const terms = {
    version,
    proposer: signer.address,
    outcome,
    max_payment: '0',
    permit: permit('100000000000'),
  } as const
  const data = await patiently(() => client.ProposalsService.signingData(identifier, terms))
  const { request, contracts, token, proposal } = data
  const { chainId } = data.typed_data.domain
  const signature = await sign({
    chainId,
    contracts,
    request,
    token: token.address,
    price: proposal.price,
    permit: terms.permit,
  })
  return { payload: { ...terms, signature }, data }
}

describe('a generated client', () => {
  test('contract §2: eligibility, signing data, signature, submit and status lead to an executed proposal', async () => {
    const { ProposalsService, OutcomeKey } = client
    const { slug, question_id } = questionOf(ready.dev, 0)
    expect(await patiently(() => ProposalsService.eligibility(signer.address))).toMatchObject({
      address: signer.address,
      eligible: true,
    })
    const { payload, data } = await signed(slug, OutcomeKey.P2)
    expect(data).toMatchObject({
      question_id,
      proposal: { outcome: 'p2', label: 'Yes', price: priceOf.p2 },
    })
    const { candidate_id } = await patiently(() => ProposalsService.submit(slug, payload))
    await expect
      .poll(() => ProposalsService.status(question_id, candidate_id), {
        timeout: 60_000,
        interval: 250,
      })
      .toMatchObject({
        candidate_id,
        status: 'executed',
        submission: { status: 'indexed' },
        failure: null,
      })
    expect(await patiently(() => ProposalsService.submit(slug, payload))).toMatchObject({
      candidate_id,
      status: 'executed',
    })
  })

  test('contract §4: so do batch signing data, batch submit and batch status, item by item', async () => {
    const asked = [questionOf(ready.dev, 1), questionOf(ready.dev, 2)].map(
      ({ question_id }) => question_id,
    )
    const contexts = await patiently(() =>
      client.BatchService.batchSigningData({ identifiers: [...asked, 'no-such-question'] }),
    )
    expect(contexts.results.map(({ status_code }) => status_code)).toEqual([200, 200, 404])
    const proposals: wire.BatchItem[] = []
    for (const { identifier, signing_data } of contexts.results) {
      if (!signing_data) continue
      const [price = ''] = signing_data.price.allowed_values
      const terms = permit(signing_data.bond.required_bond)
      const { request, contracts, bond, signing } = signing_data
      const facts = {
        chainId: String(signing.chain_id),
        contracts,
        request: { ...request, identifier: request.identifier.raw },
      }
      const signature = await sign({ ...facts, token: bond.token, price, permit: terms })
      const own = {
        identifier,
        client_ref: identifier.slice(0, 10),
        proposer: signer.address,
        proposed_price: price,
        signature,
      }
      proposals.push({
        ...own,
        max_payment: '0',
        permit: { ...terms, deadline: Number(terms.deadline) },
      })
    }
    const submitted = await patiently(() => client.BatchService.batchSubmit({ proposals }))
    expect(submitted.summary).toEqual({ accepted: 2, replayed: 0, rejected: 0 })
    expect(submitted.results.map(({ client_ref }) => client_ref)).toEqual(
      asked.map((id) => id.slice(0, 10)),
    )
    const ids = submitted.results.map(({ candidate }) => candidate?.candidate_id ?? '')
    await expect
      .poll(
        async () =>
          (await client.BatchService.batchStatus({ candidate_ids: ids })).results.map(
            ({ candidate }) => candidate?.status,
          ),
        {
          timeout: 60_000,
          interval: 250,
        },
      )
      .toEqual(['executed', 'executed'])
  })

  test('contract §2: a refusal is an ApiError with status, code and detail', async () => {
    const { slug } = questionOf(ready.dev, 3)
    const { payload } = await signed(slug, 'p1')
    await patiently(() => client.ProposalsService.submit(slug, payload))
    const other = { ...payload, permit: permit(payload.permit.amount) }
    const error = await patiently(() =>
      client.ProposalsService.submit(slug, { ...other, signature: payload.signature }),
    ).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(client.ApiError)
    expect(error).toMatchObject({
      status: 403,
      body: { error: { code: 'signature_not_authorized' } },
    })
    await expect(
      patiently(() => client.ProposalsService.eligibility('0x12')),
    ).rejects.toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_identifier' } },
    })
  })

  test('contract §2: the routes of the gateway itself are methods too', async () => {
    expect(await client.GatewayService.health()).toEqual({ status: 'ok' })
    expect(await client.GatewayService.readiness()).toEqual({ ready: true, reasons: [] })
    expect(await client.GatewayService.openapi()).toMatchObject({ openapi: '3.1.0' })
  })

  test('contract §2: each answer it got from the serving process is held against the document', async () => {
    await judgeAnswers()
    const before = judgedAnswers()
    await client.GatewayService.health()
    await client.GatewayService.openapi()
    await judgeAnswers()
    expect(judgedAnswers() - before).toBe(2)
  })

  test('contract §2: its types hold together under a strict compiler', async () => {
    const compiler = join(import.meta.dirname, '..', '..', 'node_modules', '.bin', 'tsc')
    const flags = argvOf`--noEmit --strict --target es2022 --lib es2022,dom --module esnext
      --moduleResolution bundler`
    const { stdout } = await promisify(execFile)(
      compiler,
      [...flags, '--types', '', join(folder, 'index.ts')],
      { cwd: folder },
    )
    expect(stdout).toBe('')
  })
})
