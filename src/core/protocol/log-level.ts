/** How grave a line of the log is, by its name and by the number that log libraries give it. */
export const logLevels = { debug: 20, info: 30, warn: 40, error: 50 } as const
export type LogLevel = keyof typeof logLevels

/** What every line of the log begins with, and a sentence for people. */
export const logFrame = (severity: LogLevel, nowMs: number, event: string, message: string) => ({
  level: logLevels[severity],
  severity,
  time: new Date(nowMs).toISOString(),
  event,
  message,
})
