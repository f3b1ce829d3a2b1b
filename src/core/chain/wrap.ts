import type { Chain } from '#ports'

const methods = [
  'chainId',
  'block',
  'call',
  'logs',
  'code',
  'storage',
  'balance',
  'transactionCount',
  'estimateGas',
  'tip',
  'send',
  'receipt',
  'hasTransaction',
  'calldata',
] as const satisfies readonly (keyof Chain)[]

type AskedOf<M extends keyof Chain> = { readonly method: M; readonly args: Parameters<Chain[M]> }
type Asked = { [M in keyof Chain]: AskedOf<M> }[keyof Chain]

export function wrapChain<C extends Chain>(
  chain: C,
  around: (asked: Asked, ask: () => Promise<unknown>) => Promise<unknown>,
): C {
  const wrapped = methods.map((method) => [
    method,
    (...args: unknown[]) =>
      around({ method, args } as Asked, () =>
        (chain[method] as (...args: unknown[]) => Promise<unknown>)(...args),
      ),
  ])
  return { ...chain, ...Object.fromEntries(wrapped) }
}
