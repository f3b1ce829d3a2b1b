import { join } from 'node:path'
import { type Finding, fail, pass, warn } from '#checks/finding'
import { fromCwd, homePaths } from '#io/home'
import type { Context } from '../terminal/context.js'
import type { Session } from './session.js'

/** Keys, PINs, and folders with signatures and budget: nobody else's to read (R5). */
export async function secretChecks(
  context: Context,
  session: Pick<Session, 'settings'>,
): Promise<readonly Finding[]> {
  const [{ permissionsOf }, { accountPinFiles }] = await Promise.all([
    import('#io/files'),
    import('#io/accounts'),
  ])
  const home = session.settings.home.value
  const keyFile = context.env.PROPOSER_KEY_FILE ?? ''
  const keystores = homePaths.keystores(home)
  const names = (await context.files.exists(keystores)) ? await context.files.list(keystores) : []
  const files = [
    ...(keyFile === '' ? [] : [fromCwd(context.cwd, keyFile)]),
    ...names
      .filter((name) => name.endsWith('.json'))
      .sort()
      .map((name) => join(keystores, name)),
    ...(await accountPinFiles(context.files, home)),
  ]
  const open: string[] = []
  for (const file of files) if (((await permissionsOf(file)) ?? 0) & 0o077) open.push(file)
  const kept = files.length === 0 ? 'no key files' : `${files.length} readable by you alone`
  const keys =
    open.length > 0
      ? fail('key_files', `other users can read ${open.join(', ')}`, `chmod 600 ${open.join(' ')}`)
      : (context.environmentKey ?? '') !== ''
        ? warn(
            'key_files',
            'the key comes from PROPOSER_PRIVATE_KEY',
            'keep it in a keystore: `proposer account import <name>`',
          )
        : pass('key_files', kept)
  const folderCheck = async (id: string, folder: string): Promise<Finding> => {
    const mode = await permissionsOf(folder)
    const fix = `chmod 700 ${folder}`
    if (mode === undefined) return pass(id, 'is created on first use')
    if ((mode & 0o077) !== 0) return warn(id, `other users can read ${folder}`, fix)
    if ((mode & 0o700) !== 0o700) return fail(id, `${folder} cannot be read and written`, fix)
    return pass(id, folder)
  }
  return [
    keys,
    await folderCheck('journal_folder', join(home, 'journal')),
    await folderCheck('budget', join(home, 'budget')),
  ]
}
