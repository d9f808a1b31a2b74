pub fn forward(x: &TracedTensor) -> Result<(TracedTensor, TracedTensor, TracedTensor)> {
    let B = x.dim(0);
    let iota = ops::arange_with(&B, kw!(dtype = DType::F32)).reshape((&B, 1)).expand((&B, 4));
    let add = x.add(&iota);
    let negated = add.neg();
    let slice = negated.narrow(1, 1, 3);
    let reshape = negated.reshape((&B, 2, 2));
    let permute = reshape.permute([1, 0, 2]);
    let less = x.lt(0.25);
    let select = less.where_(2.0, x);
    Ok((slice, permute, select))
}
