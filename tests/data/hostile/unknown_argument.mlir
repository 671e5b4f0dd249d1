module {
  coreai.graph @main(%x: tensor<2xf32>) -> tensor<2xf32> {
%y = aten.exp %x, nonsense = 3 : (tensor<2xf32>) -> tensor<2xf32>
coreai.output %y : tensor<2xf32>
  }
}
