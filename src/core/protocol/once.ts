/** Runs once, however many ask; all get what the first one was given. */
export function once<T, A extends readonly unknown[]>(make: (...given: A) => Promise<T>) {
  let made: Promise<T> | undefined
  return (...given: A) => {
    made ??= make(...given)
    return made
  }
}
