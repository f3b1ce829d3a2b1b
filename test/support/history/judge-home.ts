import { listRuns, readRun } from '#client/journal/journal'
import { systemHash } from '#io/clock'
import { systemFiles } from '#io/files'
import type { Files } from '#ports'
import { createJournalFacts } from './journal-facts.js'
import { violationsText } from './observed-history.js'
import { createRuleCheck } from './rule-check.js'

export async function journalFaults(home: string, files: Files = systemFiles): Promise<string> {
  const folder = `${home}/journal`
  const runs = await Promise.all(
    (await listRuns(files, folder)).map(async (token) => {
      const factsOf = createJournalFacts(systemHash, token)
      const records = await readRun({ files, hash: systemHash }, `${folder}/${token}`)
      return records.map((record) => ({ timeMs: record.timeMs, facts: factsOf(record) }))
    }),
  )
  const check = createRuleCheck()
  for (const { facts } of runs.flat().sort((one, other) => one.timeMs - other.timeMs))
    for (const fact of facts) check.durable(fact)
  return violationsText(check.verdict())
}
