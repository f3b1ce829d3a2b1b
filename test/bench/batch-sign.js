import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { privateKeyToAccount } from 'viem/accounts'
import { figure, inTurn, syncMilliseconds } from './measure.js'
import { serveQuestions } from './question-server.js'

const items = 10_000
const sample = 300
const megabyte = 1024 * 1024

/** Resident bytes of a process, where the system tells them; else `undefined`. */
function residentBytes(pid) {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ')[1]) * 4096
  } catch {
    // No such file system, or the process has just ended.
    return undefined
  }
}

/** What the command has written so far, under its final name or another one. */
const writtenBytes = (folder) =>
  readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0)

/**
 * Runs the command to its end; seconds, and by how much its memory grew from a tenth of the output
 * on.
 */
function run(command, args, env, folder) {
  return new Promise((resolve, reject) => {
    const start = performance.now()
    const child = spawn(command, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
    let errors = ''
    child.stderr.setEncoding('utf8').on('data', (text) => {
      errors = (errors + text).slice(-2000)
    })
    const seen = []
    const timer = setInterval(() => {
      const bytes = residentBytes(child.pid)
      if (bytes !== undefined) seen.push({ bytes, written: writtenBytes(folder) })
    }, 20)
    child.once('error', reject)
    child.once('close', (code) => {
      clearInterval(timer)
      if (code !== 0)
        return reject(new Error(`${args.slice(0, 3).join(' ')} ended with ${code}: ${errors}`))
      const whole = writtenBytes(folder)
      const late = seen.filter(({ written }) => written >= whole / 10).map(({ bytes }) => bytes)
      resolve({
        seconds: (performance.now() - start) / 1000,
        grownBytes: late.length === 0 ? undefined : Math.max(...late) - late[0],
      })
    })
  })
}

/** Microseconds that viem takes to sign the same typed data, one after the other. */
async function viemMicroseconds({ typedData }, key, { url, trust, questionIds }) {
  const identifiers = questionIds.slice(0, 100)
  const answer = await fetch(`${url}/propose/batch/signing-data`, {
    method: 'POST',
    body: JSON.stringify({ identifiers }),
  })
  const account = privateKeyToAccount(key)
  const inputs = (await answer.json()).results.map(({ signing_data: { request, bond } }, n) => {
    const domain = {
      chainId: trust.chain_id,
      permit2: trust.permit2,
      signedProposer: trust.signed_proposer,
    }
    const { oracle, requester, timestamp, ancillary_data: ancillaryData, identifier } = request
    const terms = {
      price: '0',
      amount: bond.required_bond,
      nonce: String(n),
      deadline: '1860003600',
    }
    return typedData(
      domain,
      { oracle, requester, identifier: identifier.raw, timestamp, ancillaryData },
      bond.token,
      terms,
    )
  })
  const start = performance.now()
  for (let n = 0; n < sample; n += 1) await account.signTypedData(inputs[n % inputs.length])
  return ((performance.now() - start) * 1000) / sample
}

/**
 * Row 5: `batch sign` of 10,000 rows from file to file (contexts asked for, checked, signed, the
 * signature verified, journaled and synced, written), beside what viem takes for the signatures
 * alone.
 */
export async function batchSignRow({ root, library, note }) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const ours = await library()
  const server = await serveQuestions(items, ours)
  try {
    const key = `0x${randomBytes(32).toString('hex')}`
    const rows = server.questionIds.map((each, n) =>
      JSON.stringify({ identifier: each, outcome: n % 2 === 0 ? 'p1' : 'p2' }),
    )
    await writeFile(join(folder, 'key'), `${key}\n`, { mode: 0o600 })
    await writeFile(join(folder, 'trust.json'), JSON.stringify(server.trust))
    await writeFile(join(folder, 'rows.ndjson'), `${rows.join('\n')}\n`)
    const grown = []
    const sign = async (round) => {
      const out = await mkdtemp(join(folder, 'out-'))
      const args = [
        join(root, 'bin', 'proposer.js'),
        'batch',
        'sign',
        join(folder, 'rows.ndjson'),
        '-o',
        join(out, 'signed.ndjson'),
      ]
      const env = {
        PATH: process.env.PATH,
        PROPOSER_HOME: join(folder, `home-${round}`),
        PROPOSER_GATEWAY: server.url,
        PROPOSER_KEY_FILE: join(folder, 'key'),
        PROPOSER_TRUST: join(folder, 'trust.json'),
      }
      const { seconds, grownBytes } = await run(process.execPath, args, env, out)
      const lines = (await readFile(join(out, 'signed.ndjson'), 'utf8')).split('\n').length - 1
      if (lines !== items) throw new Error(`${lines} items were written instead of ${items}`)
      note(`round ${round + 1}: ${figure(items / seconds)} a second`)
      if (grownBytes !== undefined) grown.push(grownBytes)
      return (seconds * 1_000_000) / items
    }
    const [mine, viem] = await inTurn(3, [sign, () => viemMicroseconds(ours, key, server)])
    const memory =
      grown.length === 0 ? 'not known here' : `${figure(Math.max(...grown) / megabyte)} MB at most`
    return {
      id: 5,
      name: 'batch sign beside viem signTypedData',
      value: viem / mine,
      unit: 'x',
      detail: `${items} rows from file to file, ${figure(mine)} µs an item, journaled and synced (append + datasync there ${figure(await syncMilliseconds(folder))} ms); viem ${figure(viem)} µs for the signature alone (of ${sample}); medians of 3, in turn; memory grew from item ${items / 10} on by ${memory}`,
    }
  } finally {
    server.close()
    await rm(folder, { recursive: true, force: true })
  }
}
