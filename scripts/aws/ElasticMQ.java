/** Runs ElasticMQ on a port of the loopback interface until it is killed. */
public class ElasticMQ {
  public static void main(String[] args) throws Exception {
    org.elasticmq.rest.sqs.SQSRestServerBuilder.withInterface("127.0.0.1")
        .withPort(Integer.parseInt(args[0])).start().waitUntilStarted();
    Thread.currentThread().join();
  }
}
