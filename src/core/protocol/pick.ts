export function pick<T extends object, Key extends keyof T>(
  value: T,
  ...keys: readonly Key[]
): Pick<T, Key> {
  return Object.fromEntries(keys.map((key) => [key, value[key]])) as Pick<T, Key>
}
