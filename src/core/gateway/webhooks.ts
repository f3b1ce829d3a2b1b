/** The `webhooks` of gateway.json (contract §9): who is told what, by signed calls. */
import * as z from 'zod'

/** What a receiver can be told of. */
export const webhookEvents = [
  'not_ready',
  'ready',
  'low_balance',
  'candidate_failed',
  'disputed',
] as const
export type WebhookEvent = (typeof webhookEvents)[number]

const mostWebhooks = 8

/** A path or query may be the receiver's secret, so that no message shows more than the host. */
const receiverUrl = (text: string): boolean => {
  if (!URL.canParse(text)) return false
  const { protocol, hostname, username, password, hash } = new URL(text)
  const isLoopback = /^(localhost|\[::1\]|127(\.\d{1,3}){3})$/.test(hostname)
  return (
    username + password + hash === '' &&
    (protocol === 'https:' || (protocol === 'http:' && isLoopback))
  )
}

export const WebhooksSection = z
  .array(
    z.strictObject({
      url: z
        .string()
        .refine(receiverUrl)
        .describe(
          'an https URL (http on loopback names only) without user name, password and fragment',
        ),
      events: z
        .array(z.enum(webhookEvents).describe(`one of ${webhookEvents.join(', ')}`))
        .min(1)
        .refine((events) => new Set(events).size === events.length)
        .describe(`a list of ${webhookEvents.join(', ')}, at least one, each once`),
      secret_file: z
        .string()
        .min(1)
        .describe('the path of a file of mode 0600 with the signing secret'),
    }),
  )
  .max(mostWebhooks)
  .default([])
  .describe(`a list of {"url", "events", "secret_file"}, at most ${mostWebhooks}`)
