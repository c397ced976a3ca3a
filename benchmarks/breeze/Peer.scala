import breeze.linalg.DenseVector
import breeze.optimize.{CachedDiffFunction, DiffFunction, LBFGS}
import java.io.{BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream}
import java.nio.ByteBuffer

/** Breeze's L-BFGS for the Python process that started this one; connection.py is the other end.
  *
  * A request on standard input is a line of text in DataInput's UTF format:
  *
  *   quadratic N ITERATIONS HISTORY            an objective in this process
  *   remote N ITERATIONS HISTORY TOLERANCE     an objective in the other one; N doubles, the start
  *
  * The answers on standard output begin with one byte: 'e' asks for an evaluation (N doubles; the
  * value and N doubles must come back), 'r' is the result (numbers and the reason, as a line), 'x' a
  * failure (its message). After the result of "remote" come the N doubles of x. All big-endian.
  */
object Peer {
  type Vector = DenseVector[Double]

  def main(args: Array[String]): Unit = {
    val in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16))
    val out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16))
    System.setOut(System.err) // what Breeze logs must not get between the answers
    val peer = new Peer(in, out)
    try while (true) peer.serve(in.readUTF().split(' '))
    catch { case _: java.io.EOFException => () } // the other end is done
  }
}

final class Peer(in: DataInputStream, out: DataOutputStream) {
  import Peer.Vector

  def serve(request: Array[String]): Unit =
    try {
      val n = request(1).toInt
      request match {
        case Array("quadratic", _, iterations, history) =>
          val start = DenseVector.zeros[Double](n)
          val f = new DiagonalQuadratic(n)
          reply('r', minimise(f, start, iterations.toInt, history.toInt, 0.0)._1)
        case Array("remote", _, iterations, history, tolerance) =>
          val start = read(n)
          val (line, x) =
            minimise(new Remote(n), start, iterations.toInt, history.toInt, tolerance.toDouble)
          reply('r', line)
          write(x)
      }
      out.flush()
    } catch {
      case failure @ (_: RuntimeException | _: OutOfMemoryError) =>
        reply('x', failure.toString)
        out.flush()
    }

  private def reply(kind: Char, line: String): Unit = {
    out.writeByte(kind)
    out.writeUTF(line)
  }

  /** The result as a line, and x. The objective is cached as Spark's MLlib does. */
  private def minimise(
      f: DiffFunction[Vector],
      start: Vector,
      iterations: Int,
      history: Int,
      tolerance: Double
  ): (String, Vector) = {
    val timed = new Timed(f)
    val solver = new LBFGS[Vector](iterations, history, tolerance)
    System.gc() // what earlier runs left is not this one's to clear away
    val began = System.nanoTime()
    val state = solver.minimizeAndReturnState(new CachedDiffFunction(timed), start)
    val seconds = (System.nanoTime() - began) * 1e-9
    val reason = state.convergenceReason.fold("none")(_.reason.replace(' ', '_'))
    val counts = s"${state.iter} ${timed.evaluations}"
    (s"$counts ${state.value} $seconds ${timed.seconds} $reason", state.x)
  }

  /** The objective lives in the other process. */
  private final class Remote(n: Int) extends DiffFunction[Vector] {
    def calculate(x: Vector): (Double, Vector) = {
      out.writeByte('e')
      write(x)
      out.flush()
      (in.readDouble(), read(n))
    }
  }

  private def read(n: Int): Vector = {
    val bytes = new Array[Byte](8 * n)
    in.readFully(bytes)
    val values = new Array[Double](n)
    ByteBuffer.wrap(bytes).asDoubleBuffer().get(values)
    DenseVector(values)
  }

  private def write(x: Vector): Unit = {
    val bytes = ByteBuffer.allocate(8 * x.length)
    bytes.asDoubleBuffer().put(x.toArray)
    out.write(bytes.array)
  }
}

/** Counts the evaluations and their time. */
final class Timed(f: DiffFunction[DenseVector[Double]]) extends DiffFunction[DenseVector[Double]] {
  var evaluations = 0
  var seconds = 0.0

  def calculate(x: DenseVector[Double]): (Double, DenseVector[Double]) = {
    val began = System.nanoTime()
    evaluations += 1
    try f.calculate(x)
    finally seconds += (System.nanoTime() - began) * 1e-9
  }
}

/** sum c_i (x_i - t)^2 / 2 with c evenly spaced from 1 to 1000 and the minimum, of equal elements t,
  * at distance 1 from the origin: minimisation.py has the same.
  */
final class DiagonalQuadratic(n: Int) extends DiffFunction[DenseVector[Double]] {
  private val curvature = Array.tabulate(n)(i => 1.0 + 999.0 * i / (n - 1))
  private val target = 1.0 / math.sqrt(n)

  def calculate(x: DenseVector[Double]): (Double, DenseVector[Double]) = {
    val values = x.data
    val gradient = new Array[Double](n)
    var sum = 0.0
    var i = 0
    while (i < n) {
      val d = values(x.offset + i * x.stride) - target
      gradient(i) = curvature(i) * d
      sum += d * gradient(i)
      i += 1
    }
    (0.5 * sum, DenseVector(gradient))
  }
}
