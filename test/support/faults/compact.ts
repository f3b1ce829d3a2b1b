import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

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
    if (!(error instanceof TypeError)) throw error
    return undefined
  }
}
