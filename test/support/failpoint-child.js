// The command line, but for one thing: at the executor's failpoint that FAILPOINT names the process is gone, as by `kill -9` (R23).
import { start } from '../../dist/main.js'

const failpoint = async (name) => {
  if (name === process.env.FAILPOINT) process.kill(process.pid, 'SIGKILL')
}
process.exitCode = await start(process, { failpoint })
