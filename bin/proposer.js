#!/usr/bin/env node
const { load } = require('./load.js')

load('main.js')
  .start(process)
  .then((exitCode) => {
    process.exitCode = exitCode
  })
