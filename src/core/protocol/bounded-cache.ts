import { LRUCache } from 'lru-cache'

/** The package's own type is not part of the library's. */
export interface BoundedCache<K, V>
  extends Pick<Map<K, V>, 'size' | 'get' | 'has' | 'delete' | 'clear'> {
  peek(key: K): V | undefined
  set(key: K, value: V): unknown
  keys(): Iterable<K>
  values(): Iterable<V>
  entries(): Iterable<[K, V]>
}

/** The least recently used leave first (R17). With `max` it would take its room at once. */
export function boundedCache<K extends {}, V extends {}>(
  most: number,
  dispose?: (value: V, key: K) => void,
  sizeOf: (key: K) => number = () => 1,
): BoundedCache<K, V> {
  return new LRUCache<K, V>({
    maxSize: most,
    sizeCalculation: (_, key) => sizeOf(key),
    ...(dispose && { dispose }),
  })
}
