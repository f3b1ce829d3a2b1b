/** A promise, and what resolves it from elsewhere. */
export function deferred<T = void>() {
  let resolve = (_value: T) => {}
  const promise = new Promise<T>((take) => {
    resolve = take
  })
  return { promise, resolve }
}
