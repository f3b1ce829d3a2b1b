import { createPlanner } from '#client/budget/planner'
import { rateLimitOf, retryHintMs } from '#client/gateway/answer'
import { systemPorts } from '#io/system'

const [, , home = '', url = ''] = process.argv
const ports = systemPorts()
const planner = createPlanner(ports, home, url)
for (let call = 0; ; call++) {
  const reservation = await planner.reserve(1 + (call % 7), { min: 1 })
  const response = await fetch(`${url}/${reservation.granted}`)
  await response.text()
  await reservation.settle({
    httpStatus: response.status,
    rateLimit: rateLimitOf(response.headers),
    retryAfterMs: retryHintMs(response.headers, '', ports.clock),
  })
}
