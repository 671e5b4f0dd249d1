module {
  coreai.graph @main(%x: tensor<9223372036854775808xf32>) -> tensor<9223372036854775808xf32> {
coreai.output %x : tensor<9223372036854775808xf32>
  }
}
