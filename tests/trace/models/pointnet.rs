//! PointNet: classes of clouds of points, which the network transforms first.

use onionskin::nn::{BatchNorm1d, Conv1d, Dropout, Linear};
use onionskin::trace::{Forward, Module, TracedTensor, ops};

use super::{check_network_of_one, network};

/// Returns a transformation of points, near the identity.
#[derive(Module)]
struct TNet {
    k: i64,
    conv1: Conv1d,
    bn1: BatchNorm1d,
    conv2: Conv1d,
    bn2: BatchNorm1d,
    fc1: Linear,
    bn3: BatchNorm1d,
    fc2: Linear,
}

impl TNet {
    fn new(k: usize) -> TNet {
        TNet {
            k: k as i64,
            conv1: Conv1d::new(k, 8, 1),
            bn1: BatchNorm1d::new(8),
            conv2: Conv1d::new(8, 16, 1),
            bn2: BatchNorm1d::new(16),
            fc1: Linear::new(16, 8),
            bn3: BatchNorm1d::new(8),
            fc2: Linear::new(8, k * k),
        }
    }
}

impl Forward<&TracedTensor> for TNet {
    type Output = TracedTensor;

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        let x = self.bn1.call(self.conv1.call(x)).relu();
        let x = self.bn2.call(self.conv2.call(x)).relu();
        let (x, _) = x.max_dim(2);
        let x = self.bn3.call(self.fc1.call(x)).relu();
        let x = self.fc2.call(x).view([-1, self.k, self.k]);
        x + ops::eye(self.k)
    }
}

#[derive(Module)]
struct PointNet {
    input_transform: TNet,
    feature_transform: TNet,
    conv1: Conv1d,
    bn1: BatchNorm1d,
    conv2: Conv1d,
    bn2: BatchNorm1d,
    fc1: Linear,
    fc2: Linear,
    dropout: Dropout,
}

impl PointNet {
    fn new(classes: usize) -> PointNet {
        PointNet {
            input_transform: TNet::new(3),
            feature_transform: TNet::new(6),
            conv1: Conv1d::new(3, 6, 1),
            bn1: BatchNorm1d::new(6),
            conv2: Conv1d::new(6, 16, 1),
            bn2: BatchNorm1d::new(16),
            fc1: Linear::new(16, 8),
            fc2: Linear::new(8, classes),
            dropout: Dropout::new(0.3),
        }
    }
}

/// Transforms points, `[batch, coordinates, points]`.
fn transform(x: &TracedTensor, matrix: &TracedTensor) -> TracedTensor {
    x.transpose(2, 1).bmm(matrix).transpose(2, 1)
}

impl Forward<&TracedTensor> for PointNet {
    type Output = (TracedTensor, TracedTensor);

    fn forward(&self, x: &TracedTensor) -> (TracedTensor, TracedTensor) {
        let x = transform(x, &self.input_transform.call(x));
        let x = self.bn1.call(self.conv1.call(x)).relu();
        let matrix = self.feature_transform.call(&x);
        let x = self.bn2.call(self.conv2.call(transform(&x, &matrix)));
        let (x, _) = x.max_dim(-1);
        let x = self.dropout.call(self.fc1.call(x).relu());
        (self.fc2.call(x).log_softmax(-1), matrix)
    }
}

#[test]
fn pointnet() {
    let traces = check_network_of_one(&network("pointnet"), &PointNet::new(5));
    assert_eq!(traces, 1);
}
