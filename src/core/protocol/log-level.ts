export const logLevels = { debug: 20, info: 30, warn: 40, error: 50 } as const
export type LogLevel = keyof typeof logLevels

export const logFrame = (severity: LogLevel, nowMs: number, event: string, message: string) => ({
  level: logLevels[severity],
  severity,
  time: new Date(nowMs).toISOString(),
  event,
  message,
})
