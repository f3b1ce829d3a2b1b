/** What has just been admitted is read about at once, also while a step is running. */
import type { Candidate } from '../../protocol/candidate.js'
import type { LedgerEvent } from '../ledger/ledger.js'

interface FreshPorts {
  /** Candidates that may wait to be read about; a deeper backlog is left to the steps. */
  readonly most: number
  /** Read about in one turn. */
  readonly atOnce: number
  /** Lets other work of the process run. */
  turn(): Promise<void>
  /** Asks the chain about a candidate. */
  ahead(candidate: Candidate): void
}

/** Takes events of the ledger; between two parts of what was admitted others have their turn. */
export function createFresh(ports: FreshPorts): (events: readonly LedgerEvent[]) => void {
  const fresh: Candidate[] = []
  const askAll = async () => {
    while (fresh.length > 0) {
      await ports.turn()
      for (const candidate of fresh.splice(0, ports.atOnce)) ports.ahead(candidate)
    }
  }
  return (events) => {
    const isIdle = fresh.length === 0
    for (const event of events)
      if (event.kind === 'candidate.received' && fresh.length < ports.most)
        fresh.push(event.candidate)
    // Not caught: what fails here is a bug and has to end the process.
    if (isIdle && fresh.length > 0) void askAll()
  }
}
