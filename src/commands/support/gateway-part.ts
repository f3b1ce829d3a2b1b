/**
 * What a support bundle says of a gateway (contract §6, `support-bundle --config`): an allow-list
 * (R5). Opens the store to look (R24).
 */
import { resolve } from 'node:path'
import * as z from 'zod/mini'
import { type BundleScope, bundleLimit } from '../../core/client/support/journal-part.js'
import type { Secret } from '../../core/client/support/secret-scan.js'
import { urlCredentials } from '../../core/client/support/url-credentials.js'
import type { GatewayConfig } from '../../core/gateway/config.js'
import { datedRecord } from '../../core/gateway/ledger/compaction.js'
import { candidateRow, createReceipts } from '../../core/gateway/status/listing.js'
import { adminTokenFile, type StorePlace } from '../../core/host/config-file.js'
import { receiptKeyFile } from '../../core/host/receipts.js'
import { instant } from '../../core/protocol/candidate.js'
import { withoutNodeWords } from '../../core/protocol/node-words.js'
import { pick } from '../../core/protocol/pick.js'
import type { StoredRecord } from '../../core/storage/record-log.js'
import { adminUrlOf, look, type Site, type StoreView } from '../operator/access.js'
import { inspectStore } from '../operator/inspection.js'
import { getAdmin } from '../operator/remote.js'
import type { Context } from '../terminal/context.js'
import { contentOf, secretsOf } from './known-secrets.js'
import { codeOf, hostOf } from './settings-part.js'

/** Changes of the store that are reported, the newest. */
const changesLimit = 50

/** The part itself, and what it is compared with before it is given away. */
export async function gatewayPart(context: Context, site: Site, wanted: BundleScope) {
  const { config, folder } = site.loaded
  const changes = createChanges()
  const view = await orError(() =>
    look(context, site, [changes], (open) => candidatesOf(open, wanted)),
  )
  const { signatures = [], holder } = view.value ?? {}
  const served = adminUrlOf(holder)
  const keyFile = config.executor.key_file
  const secrets: readonly Secret[] = [
    ...secretsOf('a credential in chain.rpc_urls', urlCredentials(config.chain.rpc_urls)),
    ...secretsOf(
      'a credential in slugs.url',
      urlCredentials(config.slugs.source === 'gamma' ? [config.slugs.url] : []),
    ),
    ...secretsOf(
      'a credential in executor.signer.url',
      urlCredentials(config.executor.signer ? [config.executor.signer.url] : []),
    ),
    ...secretsOf('the PIN of a token', [
      config.executor.pkcs11 &&
        (await contentOf(context, resolve(folder, config.executor.pkcs11.pin_file))),
    ]),
    ...secretsOf("the executor's key", [
      context.env.PROPOSER_EXECUTOR_KEY_FILE
        ? await contentOf(context, resolve(context.cwd, context.env.PROPOSER_EXECUTOR_KEY_FILE))
        : '',
      keyFile === undefined ? '' : await contentOf(context, resolve(folder, keyFile)),
    ]),
    ...secretsOf('a receipt key', await receiptSecrets(context, site)),
    ...secretsOf('the admin token', [await contentOf(context, adminTokenFile(site.loaded))]),
    ...secretsOf('the password of the store', passwordsOf(site.loaded.place)),
    ...secretsOf('a signature or transaction of the store', signatures),
  ]
  return {
    secrets,
    part: {
      config: publicConfig(config),
      store:
        site.loaded.place.kind === 'folder'
          ? await storeProof(context, site)
          : { shared: true, store_id: view.value?.info?.storeId ?? null },
      holder:
        holder === undefined
          ? null
          : { state: holder.state, pid: holder.pid, serves: served !== undefined },
      unreadable: view.error ?? null,
      stages: view.value?.stages ?? null,
      candidates: view.value?.candidates ?? [],
      candidates_left_out: view.value?.leftOut ?? 0,
      changes: changes.newest(),
      running: served === undefined ? null : await runningPart(context, served),
    },
  }
}

/**
 * Every key by name: a key of a later version is not reported before somebody has thought about it.
 */
function publicConfig(config: GatewayConfig) {
  const { chain, slugs, admission, cors, proxy, executor } = config
  const { key_file, account, signer, pkcs11 } = executor
  return {
    listen: pick(config.listen, 'host', 'port'),
    admin: pick(config.admin, 'port'),
    chain: {
      id: chain.id,
      profile: chain.profile ?? null,
      rpc_urls: chain.rpc_urls.map(hostOf),
      ...pick(chain, 'permit2', 'signed_proposer', 'oracles'),
      requesters: chain.requesters.map((one) => pick(one, 'address', 'kind')),
      ...pick(chain, 'tokens', 'confirmations', 'max_head_age_seconds'),
      implementations: codeOf(chain.implementations ?? {}),
    },
    questions: config.questions !== null,
    slugs:
      slugs.source === 'gamma'
        ? { source: slugs.source, url: hostOf(slugs.url) }
        : { source: slugs.source },
    admission: { enabled: admission.enabled, wallets: admission.allowlist.length },
    budget: pick(config.budget, 'window_seconds', 'per_ip_items', 'global_items'),
    cors: { origins: cors.origins.length },
    proxy: { trusted_cidrs: proxy.trusted_cidrs.length },
    pipeline: pick(config.pipeline, 'enabled'),
    receipts: config.receipts !== undefined,
    executor: {
      enabled: executor.enabled,
      key:
        key_file !== undefined
          ? 'key_file'
          : account !== undefined
            ? 'account'
            : signer !== undefined
              ? 'signer'
              : pkcs11 !== undefined
                ? 'pkcs11'
                : 'none',
      ...(signer && { signer: { url: hostOf(signer.url), address: signer.address } }),
      ...pick(executor, 'max_fee_gwei', 'batch'),
    },
  }
}

/** Private halves, wherever they stand in the file. */
async function receiptSecrets(context: Context, { loaded }: Site): Promise<readonly string[]> {
  const path = receiptKeyFile(loaded)
  const text = path === undefined ? undefined : await contentOf(context, path)
  return [...(text ?? '').matchAll(/"d"\s*:\s*"([\w-]+)"/g)].map(([, d = '']) => d)
}

/** As it stands in the URL, and decoded. */
function passwordsOf(place: StorePlace): readonly string[] {
  const written = place.kind === 'database' && /:\/\/[^:@/]*:([^@/]*)@/.exec(place.url)?.[1]
  return written ? [written, decodeURIComponent(written)] : []
}

async function storeProof(context: Context, site: Site) {
  const { value, error } = await orError(() => inspectStore(context, site))
  if (value === undefined) return { sound: false, ...error }
  const { inspection, facts } = value
  const { damage } = inspection
  return {
    sound: damage === undefined,
    store_id: facts.info?.storeId ?? null,
    records: inspection.records,
    bytes: inspection.files.reduce((sum, { bytes }) => sum + bytes, 0),
    torn_bytes: inspection.tornBytes,
    open_slots: facts.slots().length,
    damage: damage === undefined ? null : { file: damage.file, offset: damage.offset },
  }
}

/**
 * Candidates newest first, and how many stand where. What a failure says in words may hold a
 * node's: its code is enough.
 */
async function candidatesOf(
  { ledger, registry, holder }: StoreView,
  { question, sinceMs }: BundleScope,
) {
  const receipts = createReceipts()
  const slugs = new Map(registry.map((entry) => [entry.questionId, entry.slug]))
  const stages = { received: 0, validated: 0, selected: 0, executed: 0, failed: 0 }
  const shown: CandidateOfBundle[] = []
  const signatures: string[] = []
  let leftOut = 0
  for (const entry of ledger.newest()) {
    stages[entry.status] += 1
    if (shown.length >= bundleLimit) {
      leftOut += 1
      continue
    }
    const candidate = await ledger.get(entry.id)
    if (candidate === undefined) continue
    const slug = slugs.get(candidate.round.questionId)
    if (question !== undefined && candidate.round.questionId !== question && slug !== question)
      continue
    if (sinceMs !== undefined && candidate.receivedAtMs < sinceMs) continue
    signatures.push(candidate.signature)
    shown.push(publicRow(candidateRow(candidate, slug, receipts)))
  }
  for (const { attempts } of ledger.slots()) signatures.push(...attempts.map(({ raw }) => raw))
  return { stages, candidates: shown, leftOut, signatures, holder, info: ledger.info }
}

const publicRow = (row: ReturnType<typeof candidateRow>) =>
  pick(
    row,
    'candidate_id',
    'status',
    'question_id',
    'slug',
    'round',
    'proposer',
    'outcome',
    'amount',
    'permit_nonce',
    'deadline',
    'received_at',
    'validated_at',
    'selected_at',
    'submission',
    'transaction_hash',
    'submitted_at',
    'confirmed_at',
    'indexed_at',
    'failure_stage',
    'failure_code',
    'retryable',
  )
type CandidateOfBundle = ReturnType<typeof publicRow>

/** The newest records by kind and ids, which is what the state log would say of them. */
function createChanges() {
  let kept: { at: string; kind: string; candidate_id: string | null; slot: string | null }[] = []
  return {
    onRecord(record: StoredRecord) {
      const { atMs, event } = datedRecord(record)
      const candidateId =
        'id' in event ? event.id : event.kind === 'candidate.received' ? event.candidate.id : null
      const slot =
        'slotId' in event ? event.slotId : event.kind === 'slot.opened' ? event.slot.id : null
      kept.push({ at: instant(atMs), kind: event.kind, candidate_id: candidateId, slot })
      if (kept.length > changesLimit * 2) kept = kept.slice(-changesLimit)
    },
    newest: () => kept.slice(-changesLimit),
  }
}

const Ready = z.object({ ready: z.boolean(), reasons: z.array(z.string()) })
const lookMs = 5_000
const maxMetricsBytes = 1024 * 1024

/**
 * What the gateway that serves tells of itself by its admin listener; a silent one is reported as
 * such.
 */
async function runningPart(context: Context, url: string) {
  const { value, error } = await orError(() =>
    getAdmin(context, `${url}/readyz`, { timeoutMs: lookMs, statuses: [200, 503] }),
  )
  const ready = Ready.safeParse(value)
  if (!ready.success) return { answers: false, ...error }
  return {
    answers: true,
    ready: ready.data.ready,
    // A node's own words may name whose account it is.
    reasons: ready.data.reasons.map(withoutNodeWords),
    metrics: await metricsOf(context, url),
  }
}

/** Our own counters and gauges without the buckets, by name and labels. */
async function metricsOf(context: Context, url: string): Promise<Readonly<Record<string, number>>> {
  const { value } = await orError(async () => {
    const fetch = await context.edges.fetch()
    const signal = AbortSignal.any([context.signal, AbortSignal.timeout(lookMs)])
    return (await (await fetch(`${url}/metrics`, { signal })).text()).slice(0, maxMetricsBytes)
  })
  const lines = [
    ...(value ?? '').matchAll(/^(proposer_[a-z_]+(?:\{[^}\n]{0,300}\})?) (-?[\d.e+-]+)$/gm),
  ]
  return Object.fromEntries(
    lines.flatMap(([, name = '', number]) =>
      /_bucket\{/.test(name) ? [] : [[name, Number(number)]],
    ),
  )
}

/** A failure of ours, or of a connection, is part of the picture; only its code is reported. */
async function orError<T>(
  work: () => Promise<T>,
): Promise<{ value?: T; error?: { code: string } }> {
  try {
    return { value: await work() }
  } catch (error) {
    if (error instanceof Error && 'code' in error && typeof error.code === 'string')
      return { error: { code: error.code } }
    throw error
  }
}
