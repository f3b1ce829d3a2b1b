import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { systemFiles } from '#io/files'
import type { DevDescription } from './dev-chain.js'
import type { DevAccount } from './dev-contracts.js'

/** Folder 0700, files 0600, paths within relative (contract §6 `--write`). */
export async function writeDevFolder(folder: string, description: DevDescription) {
  const { trust, accounts } = description
  const { slugs: _, chain_id: id, ...contracts } = trust
  const proposers = accounts.filter(({ role }) => role === 'proposer')
  const gateway = {
    // There is no load balancer that would have to notice an end.
    listen: { drain_seconds: 0 },
    store: './gateway-store',
    chain: { id, rpc_urls: [description.rpc_url], ...contracts },
    questions: './questions.json',
    slugs: { source: 'registry' },
    admission: { enabled: true, allowlist: proposers.map(({ address }) => address) },
    executor: { enabled: true, key_file: './executor.key' },
  }
  const json = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`
  const ids = description.questions.map(({ question_id, slug }) => ({ question_id, slug }))
  const key = (name: string, { private_key }: DevAccount) => [name, `${private_key}\n`] as const
  const files = [
    ['gateway.json', json(gateway)] as const,
    ['trust.json', json(trust)] as const,
    ['questions.json', json(ids)] as const,
    ...accounts.filter(({ role }) => role === 'executor').map((one) => key('executor.key', one)),
    ...proposers.map((one, index) => key(`proposer-${index + 1}.key`, one)),
  ]
  await systemFiles.makeDir(folder)
  await chmod(folder, 0o700)
  for (const [name, text] of files) {
    const path = join(folder, name)
    await writeFile(path, text, { mode: 0o600 })
    await chmod(path, 0o600)
  }
  return files.map(([name]) => name)
}
