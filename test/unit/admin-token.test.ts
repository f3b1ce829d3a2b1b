import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { ensureAdminToken } from '#io/serving/admin-token'
import { temporaryFolder } from '#support/folders'

let folder: string
beforeEach(() => {
  folder = temporaryFolder()
})

test('contract §9: gateways that start in one folder at the same moment have one token', async () => {
  const path = join(folder, 'admin.token')
  const ports = { files: systemFiles, random: systemRandom }
  for (let round = 0; round < 20; round++) {
    const tokens = await Promise.all(Array.from({ length: 8 }, () => ensureAdminToken(ports, path)))
    expect(new Set(tokens)).toEqual(new Set([readFileSync(path, 'utf8').trim()]))
    expect(await ensureAdminToken(ports, path)).toBe(tokens[0])
    expect(readdirSync(folder)).toEqual(['admin.token'])
    expect(statSync(path).mode & 0o777).toBe(0o600)
    rmSync(path)
  }
})
