/**
 * The library, imported as `proposer` by programs in another folder: the examples of
 * docs/library.md compile and run, and nothing else leaks.
 */
import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { argvOf } from '#support/argv'
import { compile, installLibrary } from '#support/library-package'
import { workshop } from '#support/processes'
import { proposals, questionOf, type ServeReady } from '#support/proposing'
import { blocksIn, pageText, section } from '#support/readme'
import { referencePage } from '../../scripts/reference.js'

const shop = workshop()
const page = pageText('docs/library.md')
let folder: string

beforeAll(async () => {
  folder = await shop.folder()
  await installLibrary(folder)
  const [proposing = '', serving = '', ...more] = blocksIn(page, 'ts')
  expect(more).toEqual([])
  await writeFile(join(folder, 'propose.ts'), proposing)
  await writeFile(join(folder, 'serve.ts'), serving)
})

const runs = promisify(execFile)
const node = (file = '', ...args: string[]) =>
  runs(process.execPath, [file, ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', HOME: folder },
  })

const values = `
  Acknowledgement Address BatchCandidate BatchCandidateStatus BatchItem BatchPermit BatchSigningData BatchSigningDataAnswer
  BatchSigningDataRequest BatchStatusAnswer BatchStatusRequest BatchSubmitAnswer BatchSubmitRequest Bytes Bytes32 CandidateState
  CandidateStatus ChainError ClientRef ConflictError Eligibility ErrorBody FailedError Failure Identifier Instant
  InterruptedError NonzeroAddress Outcome OutcomeKey PendingError Permit ProposerError RejectedError RulesChangedError Signature
  SignedProposal SigningData SigningDataRequest StorageError Submission SubmissionState TransportError Trust TypedData Uint256
  UnauthorizedError UnavailableError UncertainError UsageError Uuid Version WireError applySet authorizationState authorize
  chainContexts createChain createGateway createGatewayClient createHttp domainSeparator exit fromBatchItem fromSingle
  gatewayContexts givenContexts intentRow isIdentifier isQuestionId limits openApiDocument openGateway openJournal openProposer
  outcomeOf parseConfig parseKey parseTrust payloadRow pollCandidates preview priceOf proposalTypeHash readKeyFile recoverSigner
  replay signerFromKey signerFromViem statusOnce submitOne submitRows systemClock systemFiles systemHash systemLiveness
  systemPorts systemRandom toBatchItem toSingle typedData verifyJournal version witnessRound witnessTypeString witnessTypes`
  .trim()
  .split(/\s+/)

describe('the library', () => {
  test('the programs of docs/library.md compile in a strict program elsewhere, declarations checked, with no package but those it depends on', async () => {
    expect(await compile(folder, ['propose.ts', 'serve.ts'])).toBe('')
  })

  test('U12: it can be loaded by require on every Node.js', async () => {
    await writeFile(join(folder, 'required.cjs'), "console.log(require('proposer').version.api)")
    expect((await node('required.cjs')).stdout).toBe('v1\n')
  })

  test('its declarations name no document that is not in the package', async () => {
    const types = join(folder, 'node_modules', 'proposer', 'dist', 'types')
    const names = (await readdir(types, { recursive: true })).filter((name) =>
      name.endsWith('.d.ts'),
    )
    expect(names.length).toBeGreaterThan(100)
    const naming: string[] = []
    for (const name of names) {
      const comments =
        (await readFile(join(types, name), 'utf8')).match(/\/\*\*[\s\S]*?\*\//g) ?? []
      const text = comments.join('\n').replaceAll(/\n\s*\* ?/g, ' ')
      for (const [found] of text.matchAll(
        /.{0,30}(?:(?<!yellow paper )§|\b[RT]\d{1,2}\b(?!\w)|docs\/).{0,20}/g,
      ))
        naming.push(`${name}: ${found}`)
    }
    expect(naming).toEqual([])
  })

  test('docs/reference/library.md is made of them: run `npm run manual` where it is not', () => {
    const types = join(folder, 'node_modules', 'proposer', 'dist', 'types')
    expect(pageText('docs/reference/library.md')).toBe(referencePage(types))
  })

  test('the types are types: a wrong field of an intent does not compile', async () => {
    const wrong = join(folder, 'wrong')
    await mkdir(wrong)
    await writeFile(
      join(wrong, 'wrong.ts'),
      "import type { SignedProposal } from 'proposer'\nexport const one: SignedProposal = { outcome: 7 }\n",
    )
    expect(await compile(wrong, ['wrong.ts'])).toMatch(/wrong\.ts\(2,\d+\): error TS2322/m)
  })

  test('its first program is a bot of at most 25 lines: it proposes, run again it signs nothing anew, and its journal is the one of the command line', async () => {
    const [bot = ''] = blocksIn(page, 'ts')
    expect(bot.trimEnd().split('\n').length).toBeLessThanOrEqual(25)
    const { url, dev } = await shop
      .start(argvOf`serve --dev --port 0 --questions 3 --json`)
      .line<ServeReady>()
    const account = dev.accounts.find(({ role }) => role === 'proposer')
    await writeFile(join(folder, 'trust.json'), JSON.stringify(dev.trust))
    await writeFile(join(folder, 'proposer.key'), `${account?.private_key}\n`, { mode: 0o600 })
    const [rain, teams, tram] = [questionOf(dev, 0), questionOf(dev, 1), questionOf(dev, 2)]
    const told = (outcome: string) => `${rain.slug} ${outcome}\n${tram.slug} ${outcome}\n`
    await expect(node('propose.js', url, dev.rpc_url, rain.slug, teams.slug)).rejects.toThrow(
      /UsageError: rows, line 2: the outcome "yes"/,
    )
    const argv = ['propose.js', url, dev.rpc_url, rain.slug, tram.slug]
    expect((await node(...argv)).stdout).toBe(
      `${told('accepted ')}${rain.question_id} executed\n${tram.question_id} executed\n`,
    )
    expect((await node(...argv)).stdout).toBe(
      `${told('replayed ')}${rain.question_id} executed\n${tram.question_id} executed\n`,
    )
    expect(await proposals(dev, account?.address ?? '')).toHaveLength(2)
    const looking = `import { openProposer, readKeyFile, signerFromKey } from 'proposer'
      const signer = signerFromKey(await readKeyFile('proposer.key'))
      const [, , gateway, rpcUrl] = process.argv
      const proposer = await openProposer({ home: 'home', gateway, rpcUrl, trust: 'trust.json', signer })
      const { positions, totals } = await proposer.positions()
      const all = [positions, await proposer.funds(), await proposer.reconcile(positions[0].question_id)]
      const digits = JSON.stringify(all).includes('"750000000"')
      console.log(JSON.stringify({ states: positions.map(({ state }) => state), totals, digits }))
      await proposer.close()`
    await writeFile(join(folder, 'looking.mjs'), looking)
    expect(JSON.parse((await node('looking.mjs', url, dev.rpc_url)).stdout)).toMatchObject({
      states: ['open', 'open'],
      totals: [{ bonded: '1500000000' }],
      digits: true,
    })
    const { code, stdout } = await shop.run(argvOf`journal list --json --home
      ${join(folder, 'home')}`)
    expect([code, JSON.parse(stdout).authorizations.length]).toEqual([0, 2])
  })

  test('its second program has a whole gateway in it, and lets its store go at the end', async () => {
    const chain = shop.start(argvOf`devchain --port 0 --write ${folder} --json`)
    await chain.line()
    for (const _ of ['first', 'second'])
      expect((await node('serve.js')).stdout).toMatch(
        /^(200|503) \{"ready":(true|false),"reasons":\[.*\]\}\n$/,
      )
  })

  test('it exports what is listed here, and docs/library.md names nothing else', async () => {
    const library = (await import(
      /* @vite-ignore */ pathToFileURL(
        join(folder, 'node_modules', 'proposer', 'dist', 'library.js'),
      ).href
    )) as { readonly default: object }
    // Node adds a few names of its own to those of a CommonJS module.
    const names = Object.keys(library).filter((name) => name in library.default)
    expect(names.sort()).toEqual([...values].sort())
    const table = section('What is exported', 'docs/library.md')
    const named = [...table.matchAll(/`([A-Za-z]+)`/g)].map(([, name = '']) => name)
    expect(named.length).toBeGreaterThan(20)
    expect(named.filter((name) => !values.includes(name))).toEqual([])
  })

  test.each(['proposer/dist/main.js', 'proposer/dist/library.js', 'proposer/src/library.ts'])(
    '%s cannot be imported',
    async (name) => {
      await writeFile(join(folder, 'leak.js'), `await import('${name}')`)
      await expect(node('leak.js')).rejects.toThrow(/ERR_PACKAGE_PATH_NOT_EXPORTED/)
    },
  )
})
