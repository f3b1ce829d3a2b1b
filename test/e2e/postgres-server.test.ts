/** X2: what another user of the machine can do to the servers that tests start. */
import { statSync } from 'node:fs'
import { dirname } from 'node:path'
import pg from 'pg'
import { describeWith } from '#support/components'
import { startPostgres } from '#support/postgres/server'

describeWith([18], 'a server of the tests', () => {
  test('X2: its superuser is reached by the socket in its own folder alone; by TCP nobody runs programs', async () => {
    const server = await startPostgres()
    try {
      expect(statSync(dirname(server.dataFolder)).mode & 0o077).toBe(0)
      const byTcp = new pg.Client(server.url().replace('gateway@', 'postgres@'))
      await expect(byTcp.connect()).rejects.toMatchObject({ code: '28000' })
      const gateway = new pg.Client(server.url())
      await gateway.connect()
      await expect(gateway.query("COPY (SELECT 1) TO PROGRAM 'true'")).rejects.toMatchObject({
        code: '42501',
      })
      await gateway.end()
    } finally {
      await server.close()
    }
  })
})
