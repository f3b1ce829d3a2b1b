/** All get what the first one was given. */
export function once<T extends object, A extends readonly unknown[]>(make: (...given: A) => T) {
  let made: T | undefined
  return (...given: A) => {
    made ??= make(...given)
    return made
  }
}
