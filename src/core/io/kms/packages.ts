/** Whether an import failed because the package itself, and not one that it needs, is not there. */
export function isMissing(error: unknown, packageName: string): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  const isNotFound = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND'
  return isNotFound && error instanceof Error && error.message.includes(`'${packageName}'`)
}
