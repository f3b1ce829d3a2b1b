import { namedQuestion, plainIdentifier } from '#protocol/market-url'

const id = `0x${'a'.repeat(64)}`

test.each([
  [id, id, false],
  ['some-slug', 'some-slug', false],
  ['https://polymarket.com/event/cup-final/will-porto-win', 'will-porto-win', false],
  ['https://polymarket.com/event/cup-final/will-porto-win?tid=1761#x', 'will-porto-win', false],
  ['https://www.polymarket.com/event/cup-final/', 'cup-final', true],
  ['polymarket.com/event/cup-final', 'cup-final', true],
  ['https://polymarket.com/pt/event/cup-final/will-porto-win', 'will-porto-win', false],
  ['https://polymarket.com/market/will-porto-win', 'will-porto-win', false],
] as const)('contract §9: %s names %s', (text, identifier, isEvent) => {
  expect(namedQuestion(text)).toEqual({ identifier, isEvent })
  expect(plainIdentifier(text)).toBe(identifier)
})

test.each([
  'https://polymarket.com.example/event/cup-final',
  'https://polymarket.com:8443/event/cup-final',
  'https://example.org/event/cup-final',
  'https://polymarket.com/event/',
  'https://polymarket.com/event/a/b/c',
  'https://polymarket.com/profile/somebody',
  'https://polymarket.com/event/UPPER',
  'javascript:alert(1)',
  'A Slug',
  '',
])('%s names no question', (text) => {
  expect(namedQuestion(text)).toBeUndefined()
})
