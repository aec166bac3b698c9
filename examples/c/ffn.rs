// SPDX-License-Identifier: BSD-3-Clause
//! ffn.rs: ffn.c in Rust: forward and backward pass of a small feed-forward layer with GELU.
//!
//!     dir=$(python -c 'import fastgelu; print(fastgelu.get_library_dir())')
//!     rustc ffn.rs -L "$dir" -C link-arg="-Wl,-rpath,$dir" && ./ffn

mod fastgelu {
    mod c {
        #[link(name = "fastgelu")]
        extern "C" {
            pub fn fastgelu_gelu_f64(n: usize, x: *const f64, y: *mut f64);
            pub fn fastgelu_gelu_backward_f64(
                n: usize,
                dy: *const f64,
                x: *const f64,
                dx: *mut f64,
            );
        }
    }

    pub fn gelu(x: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        // SAFETY: both hold x.len() elements and do not overlap.
        unsafe { c::fastgelu_gelu_f64(x.len(), x.as_ptr(), y.as_mut_ptr()) }
        y
    }

    pub fn gelu_backward(dy: &[f64], x: &[f64]) -> Vec<f64> {
        assert_eq!(dy.len(), x.len());
        let mut dx = vec![0.0; x.len()];
        // SAFETY: all three hold x.len() elements and do not overlap.
        unsafe { c::fastgelu_gelu_backward_f64(x.len(), dy.as_ptr(), x.as_ptr(), dx.as_mut_ptr()) }
        dx
    }
}

/// A matrix by rows.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns)
            .map(|i| value(i / columns, i % columns))
            .collect();
        Matrix {
            rows,
            columns,
            values,
        }
    }
    fn at(&self, i: usize, j: usize) -> f64 {
        self.values[i * self.columns + j]
    }
    fn times(&self, b: &Matrix) -> Matrix {
        Matrix::new(self.rows, b.columns, |i, j| {
            (0..self.columns).fold(0.0, |sum, l| sum + self.at(i, l) * b.at(l, j))
        })
    }
    fn transposed(&self) -> Matrix {
        Matrix::new(self.columns, self.rows, |i, j| self.at(j, i))
    }
    fn with(&self, values: Vec<f64>) -> Matrix {
        Matrix { values, ..*self }
    }
}

/// Half the sum of the squares of y = gelu(x A) B.
fn loss(x: &Matrix, a: &Matrix, b: &Matrix) -> f64 {
    let h = x.times(a);
    let y = h.with(fastgelu::gelu(&h.values)).times(b);
    y.values.iter().fold(0.0, |sum, y| sum + y * y / 2.0)
}

/// %.9g of C, for numbers of moderate size.
fn show(value: f64) -> String {
    let digits = 8 - value.abs().log10().floor() as i32;
    let text = format!("{:.*}", digits.max(0) as usize, value);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn main() {
    let number = |i: usize, factor: usize, modulus: usize, middle: f64, scale: f64| {
        ((i * factor % modulus) as f64 - middle) / scale
    };
    let x = Matrix::new(5, 4, |i, j| number(4 * i + j, 37, 41, 20.0, 10.0));
    let a = Matrix::new(4, 16, |i, j| number(16 * i + j, 29, 31, 15.0, 16.0));
    let b = Matrix::new(16, 4, |i, j| number(4 * i + j, 23, 29, 14.0, 16.0));

    let h = x.times(&a);
    let g = h.with(fastgelu::gelu(&h.values));
    let dy = g.times(&b); // y, and the gradient of the loss
    let db = g.transposed().times(&dy);
    let dg = dy.times(&b.transposed());
    let dh = h.with(fastgelu::gelu_backward(&dg.values, &h.values));
    let da = x.transposed().times(&dh);
    let dx = dh.times(&a.transposed());

    let total = loss(&x, &a, &b);
    println!("loss {}", show(total));
    for (name, d) in [("dx", &dx), ("dA", &da), ("dB", &db)] {
        println!("{}   {} {} ...", name, show(d.values[0]), show(d.values[1]));
    }

    let step = 1.0 / f64::from(1 << 17);
    let mut worst: f64 = 0.0;
    let parameters = [x, a, b];
    for (which, gradient) in [dx, da, db].iter().enumerate() {
        for i in 0..gradient.values.len() {
            let beside = |by: f64| {
                let mut p = parameters.clone();
                p[which].values[i] += by;
                loss(&p[0], &p[1], &p[2])
            };
            let slope = (beside(step) - beside(-step)) / (2.0 * step);
            worst = worst.max((slope - gradient.values[i]).abs());
        }
    }
    let ok = worst < 1e-6 * total;
    println!(
        "finite differences {}",
        if ok { "agree" } else { "DISAGREE" }
    );
    std::process::exit(i32::from(!ok));
}
