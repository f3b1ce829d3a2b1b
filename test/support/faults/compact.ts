import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * Asks a gateway to fold its store, as `operator store compact` does. Resolves at its end with
 * status and error code; `undefined` where the gateway is killed meanwhile. Throws where the call
 * itself is at fault.
 */
export async function compact(store: string, adminUrl: string): Promise<string | undefined> {
  const token = (await readFile(join(store, 'admin.token'), 'utf8')).trim()
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` }
  try {
    const answer = await fetch(`${adminUrl}/operator/store/compact`, {
      method: 'POST',
      headers,
      body: '{}',
    })
    const { error } = (await answer.json()) as { error?: { code: string } }
    if (answer.status !== 200 && answer.status < 500)
      throw new Error(`no compaction: ${answer.status} ${error?.code}`)
    return error === undefined ? String(answer.status) : `${answer.status} ${error.code}`
  } catch (error) {
    // How fetch says that the connection was refused or cut.
    if (!(error instanceof TypeError)) throw error
    return undefined
  }
}
