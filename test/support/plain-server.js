// A server that does nothing but answer, in a process of its own: what its callers wait for, the
// machine makes them wait for. Tells its port by IPC.
import { createServer } from 'node:http'

const server = createServer((_request, response) => response.end('{}'))
server.listen(0, '127.0.0.1', () => process.send(server.address().port))
process.on('disconnect', () => process.exit())
