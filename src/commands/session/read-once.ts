import { config } from 'zod'

/** For a process that reads its input once: zod then does not compile its checks, which takes longer than to make them. */
export const readOnce = () => config({ jitless: true })
