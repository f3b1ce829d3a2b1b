/**
 * docs/operating.md: what it tells an operator to type is typed here, and what it shows as
 * configuration is configuration.
 */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseConfig } from '#gateway/config'
import { temporaryFolder } from '#support/folders'
import { freePort } from '#support/processes'
import { blocksIn, pageText, section, shell } from '#support/readme'

const root = join(import.meta.dirname, '../..')
const text = ['Two gateways', 'Restore drill'].reduce(
  (page, title) => page.replace(section(title, 'docs/operating.md'), ''),
  pageText('docs/operating.md'),
)
const folder = temporaryFolder()

const blocks = (language: string) => blocksIn(text, language)

describe('docs: running a gateway', () => {
  test('its commands lead from an empty folder to an executed proposal, a backup and an orderly end', async () => {
    const ports = [await freePort(), await freePort(), await freePort()]
    const moved = ['8545', '8787', '8788'].reduce(
      (script, port, index) =>
        script.replaceAll(new RegExp(`\\b${port}\\b`, 'g'), String(ports[index])),
      blocks('sh').join('\n'),
    )
    const { code, stdout, stderr } = await shell(folder, moved)
    expect({ code, stdout, stderr }).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('executed'),
    })
    expect(stdout).toContain('{"ready":true,"reasons":[]}')
    expect(stdout).toContain('proposer_ready 1')
    for (const [metric] of pageText('docs/reference/metrics.md').matchAll(/\bproposer_[a-z_]+\b/g))
      expect(stdout).toMatch(new RegExp(`^${metric}`, 'm'))
    expect(stdout).not.toContain('FAIL')
    expect(stdout.replaceAll(/\s+/g, ' ')).toMatch(
      /ok store: \S+ is sound and can be written; it holds 1 candidate\b/,
    )
    const [line = ''] = (await readFile(join(folder, 'gateway', 'ready.json'), 'utf8')).split('\n')
    expect(JSON.parse(line)).toMatchObject({ event: 'ready', url: `http://127.0.0.1:${ports[1]}` })
  })

  test('contract §6: where what is waited for has ended, the waiting ends too, with its log', async () => {
    const waits = [
      ...blocks('sh')
        .join('\n')
        .matchAll(/^proposer [^\n]*&\n(?:\w+=\$!\n)(until .*\n.*)$/gm),
    ]
    expect(waits).toHaveLength(2)
    for (const [script, loop] of waits) {
      const { code, stdout } = await shell(folder, script, {
        proposer: 'echo "no such chain" >&2; exit 75',
      })
      expect([code, stdout], loop).toEqual([1, 'no such chain\n'])
    }
  })

  test('contract §7: the configuration that it explains has every key, and its defaults are the ones built in', () => {
    const [code = ''] = blocksIn(
      section('gateway.json', 'docs/reference/configuration.md'),
      'jsonc',
    )
    const shown = JSON.parse(code.replace(/\s\/\/.*$/gm, ''))
    const config = parseConfig(shown, 'docs')
    const { rpc_urls, signed_proposer, oracles, requesters, tokens } = shown.chain
    const chainOfLeast = { rpc_urls, signed_proposer, oracles, requesters, tokens }
    const least = parseConfig({ chain: chainOfLeast, receipts: {} }, 'docs')
    const { account, ...executor } = config.executor
    const { profile, implementations, ...chain } = config.chain
    expect({ ...config, executor, chain }).toEqual(least)
    expect({ account, profile }).toEqual({ account: 'executor', profile: 'polygon' })
    expect(parseConfig({ chain: chainOfLeast }, 'docs')).not.toHaveProperty('receipts')
    expect(Object.keys(implementations ?? {})).toEqual(oracles)
    expect(Object.keys(shown).sort()).toEqual(Object.keys(config).sort())
    for (const [part, known] of Object.entries(config))
      if (known !== null && typeof known === 'object' && !Array.isArray(known))
        expect([part, Object.keys(shown[part]).sort()]).toEqual([part, Object.keys(known).sort()])
  })

  test('contract §2: the reasons of /readyz that it explains are the ones that are given', async () => {
    const table = text.slice(text.indexOf('| `/readyz` says')).split('\n\n')[0] ?? ''
    const reasons = table
      .split('\n')
      .slice(2)
      .flatMap((row) =>
        [...(row.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, reason = '']) => reason),
      )
    expect(reasons.length).toBeGreaterThan(7)
    for (const cause of [
      /max_fee_gwei/,
      /refuses the transaction/,
      /its fee was raised/,
      /been checked yet/,
      /as an ERC-20/,
    ])
      expect(table).toMatch(cause)
    const folder = join(root, 'src/core/gateway')
    const files = (await readdir(folder, { recursive: true })).filter((file) =>
      file.endsWith('.ts'),
    )
    const sources = await Promise.all(files.map((file) => readFile(join(folder, file), 'utf8')))
    const given = sources.join('\n')
    const parts = reasons.flatMap((reason) => reason.split('…').map((part) => part.trim()))
    expect(parts.filter((part) => !given.includes(part))).toEqual([])
  })

  test('domain §6: its chain section for Polygon is complete, and its token one of an executor', () => {
    const [token = '', code = '', ...more] = blocks('json')
    expect(more).toEqual([])
    const pkcs11 = JSON.parse(token)
    const config = parseConfig({ chain: JSON.parse(code), executor: { pkcs11 } }, 'docs')
    expect(config.chain).toMatchObject({ profile: 'polygon', id: 137 })
    expect(config.executor.pkcs11).toEqual(pkcs11)
  })
})
