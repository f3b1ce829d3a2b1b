import { LRUCache } from 'lru-cache'

/**
 * A cache of at most so many; the least recently used leave first (R17). It takes room only as it
 * fills, unlike one with `max`. `dispose` is called with what leaves.
 */
export function boundedCache<K extends {}, V extends {}>(
  most: number,
  dispose?: (value: V, key: K) => void,
): LRUCache<K, V> {
  return new LRUCache<K, V>({
    maxSize: most,
    sizeCalculation: () => 1,
    ...(dispose && { dispose }),
  })
}
