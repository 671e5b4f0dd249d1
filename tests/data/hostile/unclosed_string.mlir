module {
  coreai.graph @main(%x: tensor<2xf32>) -> tensor<2xf32> {
%y = coreai.exp %x : tensor<2xf32> -> tensor<2xf32> {a = "an unclosed string with many characters, after which the lexer took forever}
coreai.output %y : tensor<2xf32>
  }
}
