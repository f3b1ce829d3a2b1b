import type { Curve } from '../protocol/recovered.js'
import { portableCurve } from '../protocol/signature.js'
import { knownNative } from './native-curve.js'

/** For who cannot wait for `quickestCurve`. */
export function systemCurve(): Curve {
  return knownNative() ?? portableCurve()
}
